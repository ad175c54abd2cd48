"""LMCache/LMCache#5005 on the release's own allocator: 65 pages lent from 64, and what a pool that refuses shows."""

import pytest

pytestmark = pytest.mark.slow
SCRIPT = "given_up_twice_questions.py"


def test_65_pages_are_lent_from_64_and_one_page_has_two_owners(lmcache_tree, answer):
    found = answer(SCRIPT, lmcache_tree)
    assert (found["pages"], found["free"], found["lent"], found["started"]) == (64, 65, 65, [True, True])
    assert (found["twice"], found["owners"], found["one_memory"]) == ([1], [1, 2], True)
    assert (found["memcheck"], found["another_page"]) == (True, False)  # its own check sees nothing
    assert found["acted"] == {"F25": 4}
    assert (found["findings"], found["crashed"]) == ({"I3": 2, "I7": 1, "I2": 1}, "")


def test_i3_where_it_is_given_up_and_i2_where_it_is_lent_again_with_both_owners(lmcache_tree, answer):
    kept = answer(SCRIPT, lmcache_tree)["kept"]
    operation, message, _ = kept["I3"]
    assert (operation, message) == (
        4,
        "1 references to page 1 given up by ref_count_down (finish of request 0), which nobody holds",
    )
    operation, message, history = kept["I2"]
    assert (operation, message) == (
        9,
        "page 1 lent to request 2 by batched_allocate (extend of request 2) while on loan to request 1 "
        "since operation 6",
    )
    lends = [line for line in history if " lent " in line]
    assert lends == [
        f"{at} lent pages page 1 to request {rid} (extend)" for at, rid in ((2, 0), (6, 1), (9, 2))
    ]
    assert sum("returned pages page 1 (finish of request 0)" in line for line in history) == 2


def test_the_clean_twin_comes_to_the_same_end_and_lends_64(lmcache_tree, answer):
    found = answer(SCRIPT, lmcache_tree, "dry:F25")
    assert (found["free"], found["lent"], found["started"], found["twice"]) == (64, 64, [True, False], [])
    assert (found["acted"], found["findings"], found["crashed"]) == ({"F25": 4}, {}, "")


def test_a_pool_that_refuses_the_second_time_shows_i3_alone(guarded_tree, answer):
    found = answer(SCRIPT, guarded_tree)
    assert (found["free"], found["lent"], found["started"], found["twice"]) == (64, 64, [True, False], [])
    assert (found["acted"], found["findings"], found["crashed"]) == ({"F25": 4}, {"I3": 1}, "")
