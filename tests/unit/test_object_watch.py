"""Pages that carry their own counts: what the watch tells of a pool, and of a client that gives a page up twice."""

import pytest
from block_bench import BLOCKS, BlockBench
from object_bench import PAGES, ObjectBench, Page, TwiceFreed

from stress.check.event import EventKind


@pytest.fixture
def heard():
    """A bench, and its events of these kinds as (kind, pages, method, request)."""

    def make(kind=Page):
        bench, told = ObjectBench(kind), []
        kinds = frozenset({EventKind.LEND, EventKind.RETURN, EventKind.REF, EventKind.UNREF})
        bench.ledger.listen(
            lambda event: told.append((event.kind.value, list(event.pages), event.method, event.cause.rid)),
            kinds,
        )
        return bench, told

    return make


def test_a_batch_is_lent_as_a_whole_and_comes_back_page_by_page(heard):
    bench, told = heard()
    pages = bench.lend(7, 3)
    bench.end(7, pages)
    down = "ref_count_down"
    assert told == [
        ("lend", [1, 2, 3], "batched_allocate", 7),
        ("ref", [1, 2, 3], "batched_allocate", 7),
        *((kind, [page], down, 7) for page in (1, 2, 3) for kind in ("unref", "return")),
    ]
    assert bench.watch.free_list(bench.watch.source).tolist() == [4, 5, 6, 7, 8, 1, 2, 3]
    assert bench.found() == {}


def test_a_batch_that_is_refused_is_taken_and_given_back_within_its_call(heard):
    bench, told = heard()
    bench.lend(1, PAGES - 2)
    del told[:]
    assert bench.do("extend", 2, lambda: bench.pool.batched_allocate(3), []) is None
    assert [(kind, pages) for kind, pages, _, _ in told] == [
        ("lend", [7, 8]),
        ("ref", [7, 8]),
        ("unref", [7, 8]),
        ("return", [7]),
        ("return", [8]),
    ]
    assert {method for _, _, method, _ in told} == {"batched_allocate", "batched_free"}
    assert bench.found() == {}


def test_a_page_that_two_hold_comes_back_with_the_last(heard):
    bench, told = heard()
    (page,) = bench.lend(1, 1)
    bench.do("extend", 2, page.ref_count_up, [page])
    bench.end(1, [page])
    assert [kind for kind, *_ in told] == ["lend", "ref", "ref", "unref"]
    bench.end(2, [page])
    assert told[-1] == ("return", [1], "ref_count_down", 2)
    assert bench.found() == {}


def test_a_page_that_is_freed_directly_gives_its_reference_up(heard):
    bench, told = heard()
    (page,) = bench.lend(1, 1)
    bench.do("finish", 1, lambda: bench.pool.free(page), [])
    assert told[-2:] == [("unref", [1], "free", 1), ("return", [1], "free", 1)]
    assert bench.found() == {}


def test_what_the_engine_asks_for_within_an_operation_of_many_is_told_under_that_request(heard):
    bench, told = heard()

    class Engine:
        step, asking = "", -1

    bench.watch.engine = engine = Engine()

    def reserve():
        for engine.asking in (4, 5):
            bench.pool.allocate()
        engine.asking = -1

    bench.do("reserve", -1, reserve)
    assert [rid for *_, rid in told] == [4, 4, 5, 5]
    assert bench.watch.cause.rid == 5  # of the last call
    bench.watch.take_cause()
    assert bench.watch.cause.rid == -1


def test_a_page_that_leaves_the_free_list_by_no_method_is_told(heard):
    bench, told = heard()
    page = bench.do("poll", -1, bench.pool.free_blocks.pop)
    bench.do("poll", -1, lambda: bench.pool.free_blocks.appendleft(page))
    assert [(kind, pages, method) for kind, pages, method, _ in told] == [
        ("lend", [PAGES], "free_blocks"),
        ("ref", [PAGES], "free_blocks"),
        ("return", [PAGES], "free_blocks"),
    ]


def test_given_up_twice_a_page_of_a_pool_that_frees_it_twice_has_two_owners():
    """I3 where it is given up, I2 where it is lent the second time, with both requests."""
    bench = ObjectBench(TwiceFreed)
    pages = bench.lend(1, 2)
    bench.end(1, pages, again=pages[:1])
    assert (bench.ledger.first.rule, bench.ledger.first.operation) == ("I3", 2)
    assert len(bench.pool.free_blocks) == PAGES + 1
    most = bench.lend(3, PAGES)
    assert "I2" not in bench.found()
    (last,) = bench.lend(4, 1)
    assert last in most
    finding = bench.kept("I2")
    assert (finding.operation, finding.page) == (bench.number, last.number)
    assert finding.message == (
        f"page {last.number} lent to request 4 by batched_allocate (extend of request 4) while on loan to request 3 "
        "since operation 3"
    )
    assert any(f"page {last.number} to request 3" in line for line in finding.history)
    assert any(f"page {last.number} to request 4" in line for line in finding.history)


@pytest.mark.parametrize("given_up", [1, 3])
def test_given_up_twice_a_page_of_a_correct_pool_of_objects_is_i3_alone(given_up):
    bench = ObjectBench(Page)
    pages = bench.lend(1, given_up)
    bench.end(1, pages, again=pages[:1])
    assert bench.found() == {"I3": 1}
    assert bench.ledger.first.message == (
        "1 references to page 1 given up by ref_count_down (finish of request 1), which nobody holds"
    )
    every = bench.lend(2, PAGES)
    assert len({page.number for page in every}) == PAGES
    assert bench.do("extend", 3, lambda: bench.pool.batched_allocate(1), []) is None
    bench.end(2, every)
    assert bench.found() == {"I3": 1}


def test_given_up_twice_a_block_of_a_pool_that_counts_below_zero_is_i3_alone():
    """vLLM's way: the count of a free block is -1 and nothing comes; who takes it next sets it anew."""
    bench = BlockBench()
    blocks = bench.lend(1, 2)
    bench.do(
        "finish", 1, lambda: (bench.pool.free_blocks(blocks), bench.pool.free_blocks(blocks[:1])), full=[]
    )
    every = bench.lend(2, BLOCKS)
    assert len({block.block_id for block in every}) == BLOCKS and not bench.pool.get_num_free_blocks()
    bench.free(2, every)
    assert bench.ledger.findings == {"I3": 1} and not bench.ledger.crashed
    assert bench.ledger.first.operation == 2
