"""What is found by a key and what a pass reads was written: told by a pool that publishes as it gives slots."""

from types import SimpleNamespace

import pytest
from block_bench import GROUPS, Block, BlockBench, Pool

from stress.check.event import EventKind
from stress.probe.publish_watch import PublishWatch


class KeyedBlock(Block):
    block_hash, is_null = None, False


class Keys:
    """One block a key."""

    def __init__(self):
        self.blocks = {}

    def get_one_block(self, key):
        return self.blocks.get(key)


class KeyedPool(Pool):
    """`keeps_keys`: a block that is lent anew stays in the map."""

    def __init__(self, keeps_keys=False):
        super().__init__()
        for block in self.blocks:
            block.__class__ = KeyedBlock
        self.cached_block_hash_to_block = Keys()
        self.keeps_keys = keeps_keys

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id
    ):
        for place in range(num_cached_blocks, num_full_blocks):
            block = blocks[place]
            block.block_hash = (request.text, place, kv_cache_group_id)
            self.cached_block_hash_to_block.blocks[block.block_hash] = block

    def get_new_blocks(self, count):
        taken = super().get_new_blocks(count)
        for block in taken:
            self._drop(block, keeps=self.keeps_keys)
        return taken

    def evict_blocks(self, block_ids):
        for number in block_ids:
            self._drop(self.blocks[number])

    def _drop(self, block, keeps=False):
        if block.block_hash is not None and not keeps:
            del self.cached_block_hash_to_block.blocks[block.block_hash]
        block.block_hash = None


class KeyedBench(BlockBench):
    def __init__(self, keeps_keys=False):
        super().__init__(pool=KeyedPool(keeps_keys), also=("publications", "reads"))
        PublishWatch(self.pool, GROUPS, self.watch)

    def publish(self, rid, blocks, first=0):
        """Within an operation."""
        request = SimpleNamespace(request_id=str(rid), text="a text")
        self.pool.cache_full_blocks(
            request=request,
            blocks=blocks,
            num_cached_blocks=first,
            num_full_blocks=len(blocks),
            block_size=4,
            kv_cache_group_id=0,
        )

    def load(self, ticket, blocks, came=None):
        """A load of these begins, or, with those that came, ends."""
        pages = [block.block_id for block in (blocks if came is None else came)]
        kind = EventKind.TRANSFER_BEGIN if came is None else EventKind.TRANSFER_END
        method = "load" if came is None else "done"

        def move():
            (self.pool.touch if came is None else self.pool.free_blocks)(blocks)
            self.watch.tell(kind, "blocks", pages, None, method, token=ticket)

        self.do("admit" if came is None else "poll", 1, move)


def give_and_take_back(bench, unpublish):
    """Slots of two blocks, published, and lost in the same operation."""

    def step():
        blocks = bench.pool.get_new_blocks(2)
        bench.publish(1, blocks)
        if unpublish == "before":
            bench.pool.evict_blocks({block.block_id for block in blocks})
        bench.pool.free_blocks(blocks)
        if unpublish == "after":
            bench.pool.evict_blocks({block.block_id for block in blocks})

    bench.do("extend", 1, step)


def test_i17_slots_that_are_taken_back_leave_their_key():
    """As vllm#57580 and #43569."""
    bench = KeyedBench()
    give_and_take_back(bench, "")
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (1, 1, 1)
    assert finding.message == (
        "page 1 is found by a key of request 1, whose request has lost it, and nothing will write it (2 such pages)"
    )


@pytest.mark.parametrize("unpublish", ["before", "after"])
def test_slots_whose_keys_are_taken_back_too_are_clean(unpublish):
    bench = KeyedBench()
    give_and_take_back(bench, unpublish)
    bench.free(2, bench.lend(2, 12))
    bench.clean()


def test_what_is_published_and_then_written_is_clean_and_found_again():
    bench = KeyedBench()
    blocks = bench.lend(1, 3)
    bench.do("extend", 1, lambda: bench.publish(1, blocks))
    bench.write(1, blocks)
    bench.free(1, blocks)
    bench.match(2, full=blocks)
    bench.do("admit", 2, lambda: bench.pool.touch(blocks), full=blocks)
    bench.read(2, [1, 2, 3], "whole")
    bench.free(2, blocks)
    bench.free(3, bench.lend(3, 12))
    bench.clean()


def test_i17_a_load_has_still_to_bring_what_is_published():
    bench = KeyedBench()
    blocks = bench.lend(1, 2)
    bench.load(7, blocks)
    bench.do("admit", 1, lambda: bench.publish(1, blocks))
    finding = bench.only("I17")
    assert (finding.operation, finding.message) == (
        3,
        "page 1 is found by a key of request 1, which a load has still to bring (2 such pages)",
    )


def test_what_a_load_has_brought_is_published_after_it():
    bench = KeyedBench()
    blocks = bench.lend(1, 2)
    bench.load(7, blocks)
    bench.load(7, blocks, came=blocks)
    bench.do("admit", 1, lambda: bench.publish(1, blocks))
    bench.read(1, [1, 2], "whole")
    bench.clean()


@pytest.mark.parametrize("keeps_keys", [False, True])
def test_i17_a_page_that_is_lent_anew_is_found_by_its_old_key(keeps_keys):
    """As vllm#4761."""
    bench = KeyedBench(keeps_keys)
    blocks = bench.lend(1, 2)
    bench.do("extend", 1, lambda: bench.publish(1, blocks))
    bench.write(1, blocks)
    bench.free(1, blocks)
    bench.lend(2, 12)
    if keeps_keys:
        finding = bench.only("I17")
        assert (finding.operation, finding.message) == (
            5,
            "page 2 was lent anew (admit of request 2) and is still found by the key of what was in it (2 such pages)",
        )
    else:
        bench.clean()


def test_i17_a_load_that_came_short_is_read():
    """As sglang#38352: the load counts as whole, and the faulty operation is its end."""
    bench = KeyedBench()
    blocks = bench.lend(1, 3)
    bench.load(7, blocks)
    bench.load(7, blocks, came=blocks[:1])
    bench.read(1, [1, 2, 3], "whole")
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (3, 4, 2)
    assert finding.message == (
        "request 1 reads page 2 of full, but its load ended without it in operation 3 (poll of request 1) "
        "(2 such pages)"
    )
    bench.read(1, [1, 2, 3], "whole")
    assert bench.ledger.findings == {"I17": 2}


def test_i17_a_load_that_came_short_is_blamed_also_once_its_pages_are_found_again():
    bench = KeyedBench()
    blocks = bench.lend(1, 2)
    bench.load(7, blocks)
    bench.load(7, blocks, came=blocks[:1])
    bench.free(1, blocks)
    bench.do("admit", 2, lambda: bench.pool.touch(blocks), full=blocks)
    bench.read(2, [1, 2], "whole")
    finding = bench.only("I17")
    assert (finding.operation, finding.page) == (
        3,
        2,
    ) and "its load ended without it in operation 3" in finding.message


def test_a_last_page_that_is_read_in_part_need_not_be_written():
    bench = KeyedBench()
    blocks = bench.lend(1, 2)
    bench.write(1, blocks[:1])
    bench.read(1, [1, 2])
    bench.clean()


def test_i9_a_hole_in_the_window_is_blamed_on_the_operation_that_made_it():
    bench = KeyedBench()
    blocks = bench.lend(1, 3)
    bench.write(1, blocks)
    bench.do("extend", 1, lambda: bench.pool.free_blocks(blocks[:1]), full=[0, *blocks[1:]])
    bench.do("poll", -1, lambda: None)
    bench.read(1, [0, 2, 3], "whole")
    finding = bench.only("I9")
    assert (finding.operation, finding.noticed, finding.page) == (3, 5, 0)
    assert finding.message == (
        "request 1 reads page 0 in its window, where its table has a hole since operation 3 (extend of request 1)"
    )
