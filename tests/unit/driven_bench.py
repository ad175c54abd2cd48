"""An engine that schedules by itself, scripted, and a loop that drives it until all requests have ended."""

from __future__ import annotations

from types import SimpleNamespace

from stress.engine.scheduling import Row, Step
from stress.serving.acceptance import Acceptance
from stress.serving.driven_loop import DrivenLoop
from stress.serving.priority import Priorities
from stress.serving.request import CANCEL_NONE, PlannedRequest
from stress.serving.state import ServingState
from stress.serving.timing import Timing

TIMING = Timing(chunk_tokens=8, max_running=4, step_us=1000, prefill_tokens_per_s=1_000_000, slots_ahead=1)


class Scripted:
    """Computes up to 8 tokens of each request a step, in order of submission; `preempts`: step -> requests that lose
    their slots in it; `refuses`: requests that are never scheduled."""

    page_size = 4
    now_us = 0
    transfer_of = None

    def __init__(self, preempts=None, refuses=(), drafts=0):
        self.preempts, self.refuses, self.drafts = preempts or {}, refuses, drafts
        self.said = []
        self.specs, self.known, self.computed = {}, {}, {}
        self.steps = 0

    def open(self, spec):
        self.specs[spec.rid] = spec

    def close(self, rid):
        del self.specs[rid]

    def submit(self, rid, priority):
        self.known[rid], self.computed[rid] = self.specs[rid].prompt_tokens, 0

    def schedule(self):
        self.steps += 1
        lose = tuple(self.preempts.get(self.steps, ()))
        for rid in lose:
            self.computed[rid] = 0
        rows = [self.row(rid) for rid in self.known if rid not in lose and rid not in self.refuses]
        self.step = Step(tuple(rows), lose)
        return self.step

    def row(self, rid):
        left = self.known[rid] - self.computed[rid]
        tokens = min(8, left)
        samples = tokens == left
        drafts = self.drafts if samples else 0
        return Row(rid, self.computed[rid], tokens + drafts, drafts, samples)

    def commit(self, rows):
        for rid, accepted in rows:
            self.computed[rid] += accepted

    def update(self, rows):
        finished = []
        for rid, tokens in rows:
            self.known[rid] += tokens
            spec = self.specs[rid]
            if self.known[rid] == spec.prompt_tokens + spec.output_tokens:
                finished.append(rid)
                del self.known[rid]
            elif tokens:
                assert self.computed[rid] == self.known[rid] - 1, "all but the last token are computed"
        return tuple(finished)

    def failures_told(self):
        return 0

    def abort(self, rid):
        self.said.append((self.steps, "abort", rid, self.computed[rid]))
        del self.known[rid]

    def pending_us(self):
        return None


def planned(rid, prompt=20, output=5, cancel=CANCEL_NONE, cancel_tokens=0, after=-1, start_us=0):
    return PlannedRequest(rid, after, 0, start_us, prompt, output, cancel, cancel_tokens)


def spec_of(rid, prompt_tokens, output_tokens):
    return SimpleNamespace(rid=rid, prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def run(engine, *requests, until_us=1_000_000, drafts=0):
    stuck = []
    state = ServingState(engine, requests, spec_of, TIMING, lambda rid, why: stuck.append((rid, why)))
    loop = DrivenLoop(state, Acceptance(1, drafts, 1_700_000), Priorities(1, "fcfs"))
    assert loop.run_until(until_us)
    assert not engine.specs and not engine.known and not state.waiting and not state.decoding
    assert state.counts["started"] == len(requests)
    return state, stuck
