"""Accepted drafts: the mean that was asked for, counts that end exactly, draws that depend on names alone."""

from __future__ import annotations

import numpy as np
import pytest

from stress.serving.acceptance import Acceptance, chance_per_draft


@pytest.mark.parametrize("mean", [1_000_000, 1_700_000, 2_490_000, 3_999_000])
def test_mean_is_what_was_asked_for(mean):
    acceptance = Acceptance(seed=1, draft_tokens=4, accept_mean_millionths=mean)
    tokens = 200_000
    steps = len(acceptance.cumulative(7, 0, tokens))
    assert tokens / steps == pytest.approx(mean / 1e6, rel=0.01)


def test_chance_solves_the_sum():
    chance = chance_per_draft(3, 2_490_000) / 1e6
    assert 1 + chance + chance**2 + chance**3 == pytest.approx(2.49, abs=1e-5)


def test_counts_end_exactly_and_each_step_yields_one_to_four():
    total = Acceptance(1, 4, 2_490_000).cumulative(3, 0, 101)
    gains = np.diff(np.concatenate([[0], total]))
    assert total[-1] == 101
    assert gains.min() >= 1
    assert gains.max() <= 4


def test_no_drafts_yield_one_token_a_step():
    assert Acceptance(1, 0, 2_490_000).cumulative(3, 0, 5).tolist() == [1, 2, 3, 4, 5]


def test_nothing_to_yield_takes_no_step():
    assert len(Acceptance(1, 4, 2_490_000).cumulative(3, 0, 0)) == 0


def test_draws_depend_on_seed_request_and_step_alone():
    one, other = Acceptance(1, 4, 2_490_000), Acceptance(2, 4, 2_490_000)
    first = one.cumulative(3, 0, 400)
    assert first.tolist() == one.cumulative(3, 0, 400).tolist()
    assert first.tolist() != other.cumulative(3, 0, 400).tolist()
    assert first.tolist() != one.cumulative(4, 0, 400).tolist()
    # A retracted request goes on where it stopped: steps 10.. are the same steps.
    later = one.cumulative(3, 10, 400 - int(first[9]))
    assert (later[:50] + first[9]).tolist() == first[10:60].tolist()
