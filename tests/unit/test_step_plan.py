"""The plan at a payload's head, and what a rank keeps of the tables that it gathered."""

import pytest

from stress.step_plan import PLAN_BYTES, GatheredPlans, Mode, StepPlan, plan_of

IDLE = StepPlan(Mode.IDLE, 0, 0, 300_000)
EXTEND = StepPlan(Mode.EXTEND, 1024, 0, 214_000)
DECODE = StepPlan(Mode.DECODE, 0, 16, 1 << 40)


def test_a_plan_is_four_int64_in_a_fixed_order():
    head = DECODE.to_bytes()
    assert (PLAN_BYTES, len(head)) == (32, 32)
    assert head == b"".join(number.to_bytes(8, "little") for number in (2, 0, 16, 1 << 40))
    assert plan_of(head + b"news") == DECODE
    assert plan_of(b"") is None
    with pytest.raises(ValueError, match="31 bytes"):
        plan_of(head[:31])


def test_all_ranks_fold_the_same_table_whatever_they_did_themselves():
    here, there = GatheredPlans(), GatheredPlans()
    for table in ([EXTEND, IDLE], [DECODE, IDLE], [IDLE, IDLE]):
        here.add(table[0], table)
        there.add(table[1], table)
    assert here.told()["digest"] == there.told()["digest"]
    told = {"exchanges": 3, "idle": 1, "extend": 1, "decode": 1, "idle_beside_busy": 0}
    assert here.told() == told | {"digest": here.told()["digest"]}
    assert (there.told()["idle"], there.told()["idle_beside_busy"]) == (3, 2)


@pytest.mark.parametrize(
    "table",
    [
        [EXTEND._replace(extend_tokens=1023), IDLE],
        [EXTEND, IDLE._replace(reached_us=300_001)],
        [IDLE, EXTEND],
        [EXTEND, None],
        [EXTEND],
    ],
    ids=["tokens", "time", "order", "lost", "width"],
)
def test_another_table_has_another_digest(table):
    plans, other = GatheredPlans(), GatheredPlans()
    plans.add(EXTEND, [EXTEND, IDLE])
    other.add(EXTEND, table)
    assert plans.told()["digest"] != other.told()["digest"]


def test_idle_beside_busy_needs_tokens_of_a_peer():
    assert GatheredPlans().add(IDLE, [IDLE, DECODE])
    assert GatheredPlans().add(IDLE, [None, EXTEND, IDLE])
    assert not GatheredPlans().add(IDLE, [IDLE, IDLE, None])
    assert not GatheredPlans().add(IDLE, [IDLE, DECODE._replace(decode_requests=0)])
    assert not GatheredPlans().add(EXTEND, [EXTEND, DECODE])
