"""Results of ranks that stand for what a real run tells, for tests of the verdict."""

from stress.config import load_config
from stress.result import Assertion, Finding, RankError, RankResult
from stress.verdict import make_verdict

MARKS = {mark: 3 for mark in load_config("smoke").check.require}
CONFIG = load_config("smoke")


def rank(arm, number, status="finished", **fields):
    values = {
        "arm": arm,
        "rank": number,
        "dp_rank": number,
        "attn_tp_rank": 0,
        "device": "cpu",
        "pid": 100 + number,
        "status": status,
        "requests_started": 10,
        "requests_finished": 9,
        "requests_cancelled": 1,
        "operations": 50,
        "virtual_us": 1_200_000 + number,
        "digest": f"{arm}{number}",
        "marks": MARKS,
        "rules_watched": ["I10", "I1", "I2"],
    }
    return RankResult(**{**values, **fields})


FINDING = Finding(
    rule="I1",
    pool="swa",
    operation=40,
    noticed=41,
    virtual_us=1_200_000,
    page=0,
    message="page 0 returned 391 times",
    history=["17 lent full page 391 to request 4 (linker load)", "40 free_swa_segment read no peer"],
)
ASSERTION = Assertion(operation=41, virtual_us=1_200_000, where="free_group_end", message="5120 > 4096")
ASSERTED = {
    "asserts": 1,
    "first_assert": ASSERTION,
    "first_finding": FINDING,
    "findings": {"I1": 391},
    "requests_finished": 0,
    "marks": {},
}


def verdict_of(*patched, arms=("patched",), unpatched=(), **options):
    results = {"patched": list(patched), "unpatched": list(unpatched)}
    return make_verdict(
        CONFIG, {arm: results[arm] for arm in arms}, arms=list(arms), launcher="local", **options
    )


def clean():
    return [rank("patched", 0), rank("patched", 1)]


ERROR = RankError(operation=7, virtual_us=1, kind="KeyError", message="'a'\nb")
