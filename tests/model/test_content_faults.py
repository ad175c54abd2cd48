"""What only content shows: rows that trade a page, a store that was poisoned, keys that lost their namespace."""

import sys
from pathlib import Path

import numpy as np
import pytest
from rank_driver import run_arm

from stress.check.shadow import Ledger
from stress.content.span import Span
from stress.engine.reference import engine as reference
from stress.matrix.base import ARM, base_config
from stress.matrix.cell import run_cell
from stress.operator import Operator
from stress.probe import Probe
from stress.workload.plan import plan_of

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from reference_bench import KEYS, PAGE, engine, finish, prefill, spec

SMALL = ["layout.tp_size=1", "layout.dp_size=1", "workload.requests=60", "check.require=[]"]


class StaleSlots(reference.ReferenceEngine):
    """In the first pass of two requests the second writes to a page of the first: its slots are those of another row.

    No page changes hands, and the row itself is right before and after: no count, table or mapping shows it.
    """

    acted = 0
    _stale: tuple[int, int, int] | None = None  # in a commit: request, place in its row, page

    def commit(self, rows):
        super().commit(rows)
        type(self)._stale = None
        if len(rows) < 2 or self.acted:
            return
        first, second = (self._rows[rid] for rid, _ in rows[:2])
        page = first.pages[first.committed // PAGE - 1]
        type(self)._stale = rows[1][0], (second.committed - 1) // PAGE, int(page)
        type(self).acted += 1

    def results_begin(self):
        type(self)._stale = None
        super().results_begin()

    def table(self, rid):
        pages = super().table(rid)
        if self._stale is None or self._stale[0] != rid:
            return pages
        pages = pages.copy()
        pages[self._stale[1]] = self._stale[2]
        return pages

    def _publish(self, rid, *, finished):
        type(self)._stale = None
        super()._publish(rid, finished=finished)


def run_stale(monkeypatch, content):
    monkeypatch.setattr("stress.engine.reference.build.ReferenceEngine", StaleSlots)
    monkeypatch.setattr(StaleSlots, "acted", 0)
    (result,), _ = run_arm("patched", *SMALL, f"check.content={content}")
    assert StaleSlots.acted == 1 and result.checker_crashed == ""
    return result


@pytest.mark.parametrize("content", ["sample", "full"])
def test_a_page_with_two_owners_is_seen_by_its_content_alone(monkeypatch, content):
    result = run_stale(monkeypatch, content)
    assert set(result.findings) == {"I16"}
    assert (
        " of request " in result.first_finding.message and "publishes it as" in result.first_finding.message
    )


def test_without_content_nothing_shows_that_a_page_has_two_owners(monkeypatch):
    result = run_stale(monkeypatch, "off")
    assert result.findings == {} and "I16" not in result.rules_watched


def watched(*overrides, content="sample"):
    target = engine("filter-per-group", *overrides)
    ledger = Ledger(target.pools, target.edges, 2)
    probe = Probe(target, ledger, content)
    operator = Operator(target, probe, lambda operation: None, lambda: None, level=2, count_asserts=False)
    return operator, probe, ledger


@pytest.mark.parametrize("content", ["sample", "full"])
def test_what_is_stored_wrong_is_told_at_the_store_at_the_load_and_at_the_read(content):
    operator, probe, ledger = watched(content=content)
    prefill(operator, spec(1, KEYS[:5], 5 * PAGE + 1))
    pages = probe._engine.table(1)
    # Somebody else writes to a page while it is read on its way to the store.
    probe.content._pool.write(Span(pages[2:3].copy(), np.array([77]), 0, PAGE, 9, 0))
    operator.now_us += 1_000_000
    operator.poll()
    stored = ledger.first
    assert (stored.rule, stored.page) == ("I16", pages[2])
    assert "holds position 0 of request 9, the store takes it for position 128 of request 1" in stored.message
    operator.abort(1)
    operator.evict(128 * PAGE, 0)
    found = ledger.findings["I16"]
    admission = prefill(operator, spec(2, KEYS[:5], 5 * PAGE + 1))
    assert admission.loaded == 5 * PAGE
    # As it lands, as the forward pass reads it where it reads every slot, and as it is published.
    assert ledger.findings == {"I16": found + 2 + (content == "full")} and ledger.crashed == ""


@pytest.mark.parametrize("content", ["sample", "full"])
def test_a_load_that_has_not_landed_is_read_as_what_its_pages_held(content):
    operator, _, ledger = watched(content=content)
    prefill(operator, spec(1, KEYS[:5], 5 * PAGE + 1))
    finish(operator, 1)
    operator.evict(128 * PAGE, 0)
    request = spec(2, KEYS[:5], 5 * PAGE + 1)
    operator.open(request)
    assert operator.admit(2, 0).loaded == 5 * PAGE
    assert operator.extend([(2, request.prompt_tokens)])
    assert ledger.findings == {}
    operator.commit([(2, 1)])  # before the load has ended
    if content == "sample":
        operator.checkpoint(2)
    assert ledger.findings["I16"] == 5 and ledger.crashed == ""
    (found,) = (finding for finding in ledger.kept if finding.rule == "I16")
    assert "before the page was lent anew" in found.message or "holds nothing" in found.message


def test_a_request_that_is_admitted_again_has_nothing_published_of_its_first_life():
    operator, probe, ledger = watched()
    prefill(operator, spec(1, KEYS[:5], 5 * PAGE + 1))
    operator.now_us += 1_000_000
    operator.poll()
    operator.retract(1)
    operator.evict(128 * PAGE, 0)
    prefill(operator, spec(3, KEYS[10:17], 7 * PAGE + 1))  # is lent what the first one had
    operator.admit(1, 0)
    assert operator.extend([(1, 5 * PAGE + 1)])
    operator.now_us += 1_000_000
    operator.poll()
    operator.commit([(1, 1)])
    operator.checkpoint(1)
    pages = probe._engine.table(1)[:5]
    assert probe.content._published.keys(pages).tolist() == KEYS[:5]
    assert ledger.findings == {} and ledger.crashed == ""


def test_two_namespaces_share_texts_and_no_keys():
    config = base_config("paged", "idle", None, ("workload.namespaces=2",))
    plan = plan_of(config, ranks=1)
    apart = [int(np.argmax(plan.namespace == namespace)) for namespace in (0, 1)]
    keys, texts = [plan.keys(i) for i in apart], [plan.texts(i) for i in apart]
    assert (keys[0] == texts[0]).all() and texts[0][0] == texts[1][0] and keys[0][0] != keys[1][0]
    assert not np.isin(keys[0], keys[1]).any()
    assert (plan.tokens(apart[0], 0, PAGE) == plan.tokens(apart[1], 0, PAGE)).all()
    # The chains of the two are kept apart: asked in turn they answer the same.
    assert all((plan.keys(i) == before).all() for i, before in zip(apart, keys, strict=True))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_key_without_its_namespace_is_found_where_it_first_acts(seed):
    needs = ("workload.namespaces=2", "workload.requests=60", f"seed={seed}")
    cell = run_cell(base_config("paged", "idle", "F22", needs), ARM)
    acted_at = cell.reached["F22"][0]
    rules = {one.detector: one.operation for one in cell.fired}
    assert acted_at in (rules.get("I16"), rules.get("I21"))
    twin = run_cell(base_config("paged", "idle", "dry:F22", needs), ARM)
    assert "F22" in twin.reached and not twin.failed
