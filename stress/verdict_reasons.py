"""Why an arm failed or shows nothing, one plain sentence each; ranks with the same reason share one.

A failure is what the target did: an assert, an error, a violated rule. A doubt is what keeps the arm from
having shown anything: a rank without its result, ranks that did not hear each other, a crashed check, a mark not
reached, requests that are not accounted for. The last two are asked only of an arm that ran to its end.
"""

from __future__ import annotations

import re

from stress.arm_layout import arm_ranks
from stress.config_schema import Config
from stress.fault_catalogue import FAULTS
from stress.fault_forms import facts_of
from stress.fault_name import parse_faults
from stress.result import RankResult
from stress.target.name import project_of
from stress.verdict_marks import missing_marks
from stress.verdict_rank import seconds

REASON_CHARACTERS = 200


def failures_of(ranks: list[RankResult]) -> list[str]:
    """What the target did wrong, without a full stop. Empty: nothing."""
    return [*_asserts(ranks), *_errors(ranks), *_violations(ranks)]


def doubts_of(config: Config, arm: str, ranks: list[RankResult]) -> list[str]:
    """Why the arm shows nothing, without a full stop. Empty: it shows what it is to show."""
    reasons = []
    planned = len(arm_ranks(config, arm))
    if planned > len(ranks):
        reasons.append(f"{planned - len(ranks)} of {planned} ranks gave no result")
    told: dict[str, list[int]] = {}
    for result in ranks:
        for reason in _rank_doubts(result):
            told.setdefault(reason, []).append(result.rank)
    reasons += [f"{_rank_names(numbers)} {reason}" for reason, numbers in told.items()]
    reasons += _alone(ranks)
    reasons += _parted_plans(ranks)
    if ran_to_its_end(config, ranks):
        reasons += _missing(missing_marks(config, ranks))
        reasons += _unwatched(config, ranks)
        reasons += _idle_faults(config, arm, ranks)
        reasons += _unaccounted(ranks)
    elif ranks and all(result.status in ("finished", "asserted", "errored") for result in ranks):
        reasons += _idle_faults(config, arm, ranks)
    return reasons


def ran_to_its_end(config: Config, ranks: list[RankResult]) -> bool:
    """Whether all ranks of the arm finished."""
    if not ranks or any(result.status != "finished" for result in ranks):
        return False
    return len(ranks) == len(arm_ranks(config, ranks[0].arm))


def sorted_rules(rules: set[str]) -> list[str]:
    """I2 before I10."""
    return sorted(rules, key=lambda rule: [(len(part), part) for part in re.split(r"(\d+)", rule)])


def _asserts(ranks: list[RankResult]) -> list[str]:
    asserted = [result for result in ranks if result.asserts]
    if not asserted:
        return []
    count = sum(result.asserts for result in asserted)
    told = [(result.first_assert, result.rank) for result in asserted if result.first_assert]
    where = ""
    if told:
        first, rank = min(told, key=lambda pair: (pair[0].virtual_us, pair[1]))
        where = f", first in {first.where} on rank {rank} at {seconds(first.virtual_us)} s"
    return [f"{len(asserted)} of {len(ranks)} ranks asserted, {_count(count, 'time')} in all{where}"]


def _errors(ranks: list[RankResult]) -> list[str]:
    erring = [result for result in ranks if result.errors]
    if not erring:
        return []
    count = sum(result.errors for result in erring)
    first = next((result.first_error for result in erring if result.first_error), None)
    what = f", first {first.kind}: {_brief(first.message)}" if first else ""
    return [f"{_count(count, 'error')} on {len(erring)} of {len(ranks)} ranks{what}"]


def _violations(ranks: list[RankResult]) -> list[str]:
    reasons = []
    for rule in sorted_rules({rule for result in ranks for rule, count in result.findings.items() if count}):
        hit = [result for result in ranks if result.findings.get(rule)]
        count = sum(result.findings[rule] for result in hit)
        reasons.append(
            f"rule {rule} was violated {_count(count, 'time')} on {len(hit)} of {len(ranks)} ranks"
        )
    return reasons


def _missing(marks: list[str]) -> list[str]:
    if not marks:
        return []
    what = "the required mark" if len(marks) == 1 else "the required marks"
    return [
        f"{what} {', '.join(marks)} {'was' if len(marks) == 1 else 'were'} never reached: this workload is too "
        "small or too easy for it; smaller pools, more requests, or --set check.require=[]"
    ]


def _unwatched(config: Config, ranks: list[RankResult]) -> list[str]:
    """Rules that were asked for by name and that no rank could watch: that they found nothing says nothing."""
    unwatched = [rule for rule in config.check.rules if not any(rule in one.rules_watched for one in ranks)]
    if not unwatched:
        return []
    one = len(unwatched) == 1
    return [
        f"{'rule' if one else 'rules'} {', '.join(unwatched)} of check.rules {'was' if one else 'were'} not watched: "
        "check.level, check.content, the pools or the arm's target do not show what it takes; leave "
        f"{'it' if one else 'them'} out, or set check.rules=[]"
    ]


def _idle_faults(config: Config, arm: str, ranks: list[RankResult]) -> list[str]:
    """Faults whose trigger no rank came to: the arm was that of a correct target, and its twin shows nothing."""
    named = parse_faults(config.arms.record(arm).fault)
    idle = [fault for fault, _ in named.chosen if not any(fault in one.faults_reached for one in ranks)]
    if not idle:
        return []
    of = f"fault {idle[0]}" if len(idle) == 1 else f"faults {', '.join(idle)}"
    project = project_of(config.arms.record(arm).target)
    facts = [facts_of(fault, project) or FAULTS[fault] for fault in idle]
    bases = [base for base in dict.fromkeys(one.config for one in facts) if base != config.name]
    elsewhere = f", and config {' or '.join(bases)} does" if bases else ""
    return [
        f"the trigger of {of} was never reached: this workload does not come to it; more requests or another "
        f"seed may{elsewhere}"
    ]


def _rank_doubts(result: RankResult) -> list[str]:
    reasons = []
    if result.status in ("lost", "stopped"):
        why = _brief(result.message)
        reasons.append(
            why if why.startswith(result.status) else f"{result.status}: {why}" if why else result.status
        )
    elif result.status != "finished" and not (result.asserts or result.errors):
        reasons.append(f"{result.status}, with no assert and no error counted")
    if result.checker_crashed:
        reasons.append(f"lost a check that crashed: {_brief(result.checker_crashed)}")
    return reasons


def _alone(ranks: list[RankResult]) -> list[str]:
    """Ranks that went on without their peers although none is lost: the run was not that of a whole arm."""
    alone = [result.rank for result in ranks if result.digest_partial]
    if not alone or any(result.status in ("lost", "stopped") for result in ranks):
        return []
    return [
        f"{_rank_names(alone)} went on alone, for a peer came too late to an exchange or did not join; raise "
        "deadlines.exchange_s"
    ]


def _parted_plans(ranks: list[RankResult]) -> list[str]:
    """Ranks that gathered other step plans than their peers; one that lost a peer is not compared."""
    heard: dict[str, list[int]] = {}
    for result in ranks:
        if result.step_plans is not None and not result.digest_partial:
            heard.setdefault(result.step_plans.digest, []).append(result.rank)
    if len(heard) < 2:
        return []
    alike = "; ".join(_rank_names(numbers) for numbers in heard.values())
    return [f"not all ranks gathered the same step plans, only these among themselves: {alike}"]


def _unaccounted(ranks: list[RankResult]) -> list[str]:
    reasons = []
    for result in ranks:
        ended = result.requests_finished + result.requests_cancelled + result.errors
        if result.requests_started != ended:
            reasons.append(
                f"rank {result.rank} started {result.requests_started} requests but {ended} finished, "
                "were cancelled or failed"
            )
    return reasons


def _rank_names(numbers: list[int]) -> str:
    names = ", ".join(map(str, numbers))
    return f"rank {names}" if len(numbers) == 1 else f"ranks {names}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _brief(text: str) -> str:
    """One line of a message; of a traceback its last one, which names the exception."""
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    line = " ".join(text.split()).rstrip(".")
    if len(line) <= REASON_CHARACTERS:
        return line
    # The sentence ends in a full stop, so what was cut off is marked by a sign of its own.
    return f"{line[:REASON_CHARACTERS].rstrip()} [...]"
