"""Every rule has a control: a test of its own that fails when that rule alone is switched off.

`CONTROLS` names it for each class of rules and each number in whose name the class reports. Where several classes have
one number, each has a control that only it finds. A rule is switched off by taking its events from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import test_rules as pools
import test_rules_accounts as accounts
import test_rules_content as content
import test_rules_group as group
import test_rules_locks as locks
import test_rules_mapping as mapping
import test_rules_progress as progress
import test_rules_published as published
import test_rules_references as references
import test_rules_row_memory as row_memory
import test_rules_transfers as transfers
import test_rules_window as window

from stress.check import rules
from stress.check.evidence import Evidence
from stress.check.rules import RULES
from stress.check.shadow import Ledger

CONTROLS: dict[tuple[type[rules.Rule], str], Callable[[], None]] = {
    (rules.Padding, "I1"): pools.test_i1_names_the_operation_that_read_no_peer_although_nothing_asserts,
    (rules.Exclusive, "I2"): pools.test_i2_names_both_owners,
    (rules.OnePlace, "I2"): references.test_i2_one_page_in_two_tables_of_a_request,
    (rules.Returned, "I3"): pools.test_i3_a_page_freed_twice,
    (rules.ReferencesGivenUp, "I3"): references.test_i3_a_reference_that_nobody_has,
    (rules.Mapping, "I4"): mapping.test_i4_a_free_that_does_not_clear,
    (rules.OneSource, "I5"): mapping.test_i5_two_source_pages_for_one_target_page,
    (rules.Holder, "I6"): mapping.test_i6_a_source_page_freed_while_its_peer_is_live,
    (rules.PrivatePages, "I6"): accounts.test_i6_a_request_that_has_ended_owns_nothing,
    (rules.PrivatePages, "I13"): accounts.test_i13_an_allocation_that_failed_half_way,
    (rules.Flush, "I7"): mapping.test_i7_a_free_resolved_at_the_flush,
    (rules.Offsets, "I8"): mapping.test_i8_one_token_cleared,
    (rules.RowMemory, "I9"): partial(row_memory.test_what_is_not_its_window_is_found, row_memory.stale),
    (rules.Window, "I9"): window.test_i9_blames_the_operation_that_took_the_peer,
    (rules.Live, "I10"): window.test_i10_a_page_below_the_boundary_is_called_live,
    (rules.Locks, "I11"): locks.test_i11_an_unlock_takes_the_lock_of_another,
    (rules.Held, "I12"): accounts.test_i12_a_page_of_another_request_is_given_up,
    (rules.Counted, "I12"): references.test_i12_a_table_names_a_page_without_a_reference,
    (rules.Conservation, "I13"): accounts.test_i13_reports_a_change_once,
    (rules.Promise, "I14"): progress.test_a_refusal_that_the_counts_do_not_explain,
    (rules.Transfers, "I15"): partial(transfers.test_a_page_that_a_store_still_reads_is_not_lent, ["I15"]),
    (rules.Content, "I16"): content.test_i16_names_both_identities,
    (rules.Written, "I17"): partial(
        transfers.test_a_hit_on_pages_whose_load_ended_without_them_is_found_where_it_ended,
        "cancelled",
        ["I17"],
    ),
    (rules.Found, "I17"): references.test_i17_a_hit_on_what_nothing_has_written,
    (rules.Read, "I17"): published.test_i17_a_load_that_came_short_is_read,
    (rules.Published, "I17"): published.test_i17_slots_that_are_taken_back_leave_their_key,
    (rules.GivenBack, "I17"): partial(
        transfers.test_what_a_private_load_did_not_bring_is_given_back_or_in_its_requests_table,
        "cancelled",
        0,
        ["I17"],
    ),
    (rules.Agreed, "I17"): partial(
        group.test_a_length_that_one_member_cannot_restore_is_found, ([4, 8], [4, 12]), 8, 1, ["I17"]
    ),
    (rules.Alike, "I18"): partial(group.test_the_first_operation_that_differs_is_named, ["I18"]),
    (rules.Collectives, "I19"): partial(
        group.test_a_collective_that_not_all_run_alike_is_found, "left out", ["I19"]
    ),
    (rules.Drained, "I20"): accounts.test_i20_names_what_is_left,
    (rules.Ended, "I20"): accounts.test_i20_names_what_is_kept_of_a_request_that_has_ended,
    (rules.Keys, "I21"): content.test_i21_reports_a_key_that_names_two_prefixes,
    (rules.Progress, "I22"): progress.test_a_request_that_waits_for_nothing,
}

# Without one of these no row of `kvstress matrix` is lost: docs/faults.md says what each is for.
SECOND_LINE = (rules.Exclusive, rules.OneSource, rules.Promise, rules.Alike, rules.Keys, rules.Progress)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rules in whose name something is reported, in the order of reports."""
    names: list[str] = []
    add = Evidence.add

    def noted(self, violation, noticed, at_us):
        names.append(violation.rule)
        add(self, violation, noticed, at_us)

    monkeypatch.setattr(Evidence, "add", noted)
    return names


def switch_off(rule: type[rules.Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, nothing in (("kinds", frozenset()), ("closes", False), ("ends", False)):
        monkeypatch.setattr(rule, attribute, nothing)


def test_every_rule_has_a_control() -> None:
    assert set(CONTROLS) == {(rule, name) for rule in RULES for name in (rule.id, *rule.also)}


@pytest.mark.parametrize(
    ("rule", "name"), [pytest.param(*key, id=f"{key[1]}-{key[0].__name__}") for key in CONTROLS]
)
def test_the_control_of_a_rule_fails_when_the_rule_is_off(rule, name, reported, monkeypatch) -> None:
    control = CONTROLS[rule, name]
    control()
    assert name in reported
    reported.clear()
    switch_off(rule, monkeypatch)
    with pytest.raises(AssertionError):
        control()
    assert name not in reported


@pytest.mark.parametrize("rule", SECOND_LINE, ids=[rule.id for rule in SECOND_LINE])
def test_what_a_rule_of_the_second_line_is_for_no_other_rule_sees(rule, reported, monkeypatch) -> None:
    """Its control with all the other rules on, whichever the control asks for."""
    correct = Ledger.__init__

    def every_rule(self, pools, edges, level=2, rules=None, **others):
        correct(self, pools, edges, level, None, **others)

    monkeypatch.setattr(Ledger, "__init__", every_rule)
    switch_off(rule, monkeypatch)
    with pytest.raises(AssertionError):
        CONTROLS[rule, rule.id]()
    assert reported == []
