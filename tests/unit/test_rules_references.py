"""Pools whose pages are shared by count: each rule has a control that it flags at the faulty operation, and a clean
twin that it does not."""

from block_bench import BLOCKS, BlockBench

from stress.check.event import EventKind


def test_sharing_and_reuse_are_clean():
    """Two requests share a prefix, one goes, the other stays; what is free is found again, and lent anew in the end."""
    bench = BlockBench()
    first = bench.lend(1, 3)
    bench.write(1, first)
    bench.match(2, full=first[:2])
    bench.do("admit", 2, lambda: bench.pool.touch(first[:2]), full=first[:2])
    bench.free(1, first)
    assert bench.pool.get_num_free_blocks() == BLOCKS - 2
    bench.free(2, first[:2])
    bench.match(3, full=first)
    bench.do("admit", 3, lambda: bench.pool.touch(first), full=first)  # out of the middle of the queue
    bench.free(3, first)
    bench.free(4, bench.lend(4, BLOCKS))
    bench.clean()


def test_i2_one_page_in_two_tables_of_a_request():
    """As vllm#33775: a block that one group's hit is made of is lent anew to another before the hit is taken."""
    bench = BlockBench()
    old = bench.lend(1, 2, "sliding")
    bench.write(1, old, "sliding")
    bench.free(1, old, sliding=[])
    bench.match(2, sliding=old[:1])

    def admit():
        bench.pool.get_new_blocks(BLOCKS)
        bench.pool.touch(old[:1])

    every = [bench.pool.blocks[number] for number in range(1, BLOCKS + 1)]
    bench.do("admit", 2, admit, full=every, sliding=old[:1])
    finding = bench.only("I2")
    assert (finding.operation, finding.page) == (bench.number, old[0].block_id)
    assert (
        finding.message
        == "request 2 has page 1 in place 0 of full and place 0 of sliding after admit of request 2"
    )
    assert (
        bench.pool.blocks[1].ref_cnt == 2
    )  # as many as the tables that name it: the pool's own accounts are right


def test_i2_is_silent_when_a_page_goes_from_one_table_to_another():
    """Its new table is told before the old one: within an operation that is no fault."""
    bench = BlockBench()
    moved = bench.lend(1, 1, "sliding")

    def slide():
        bench.pool.free_blocks(moved)
        while bench.pool.get_new_blocks(1) != moved:
            pass

    every = [bench.pool.blocks[number] for number in range(1, BLOCKS + 1)]
    bench.do("extend", 1, slide, full=[*every[1:], *moved], sliding=[0])
    bench.clean()


def test_i3_a_reference_that_nobody_has():
    """vLLM's `free_blocks` of a free block: the count goes below zero, nothing comes, and nobody complains."""
    bench = BlockBench()
    blocks = bench.lend(1, 2)
    bench.free(1, blocks)
    bench.do("abort", 2, lambda: bench.pool.free_blocks(blocks[:1]))
    finding = bench.only("I3")
    assert (finding.operation, finding.page) == (3, 1)
    assert finding.message == (
        "1 references to page 1 given up by free_blocks (abort of request 2), which nobody holds"
    )
    assert bench.pool.get_num_free_blocks() == BLOCKS


def test_i3_a_page_that_two_references_give_up_in_one_call_comes_twice():
    """As vllm#42571: each of the two stands at none when the call looks."""
    bench = BlockBench()
    (block,) = bench.lend(1, 1)
    bench.do("poll", -1, lambda: bench.pool.touch([block, block]))
    bench.free(1, [block])
    bench.do("poll", -1, lambda: bench.pool.free_blocks([block, block]))
    first = bench.ledger.first
    assert (first.operation, first.rule) == (
        2,
        "I12",
    )  # two references that neither table nor transfer explains
    twice = next(finding for finding in bench.ledger.kept if finding.rule == "I3")
    assert (twice.operation, twice.page) == (4, block.block_id)
    assert "comes back twice in one call" in twice.message


def test_i12_a_table_names_a_page_without_a_reference():
    bench = BlockBench()
    blocks = bench.lend(1, 2)
    bench.write(1, blocks)
    bench.do("admit", 2, lambda: None, full=blocks[:1])
    finding = bench.only("I12")
    assert (finding.operation, finding.page) == (3, 1)
    assert finding.message == "page 1 has 1 references, and 2 tables and 0 transfers name it"


def test_i12_a_page_whose_holders_have_gone_keeps_its_reference():
    bench = BlockBench()
    blocks = bench.lend(1, 3)
    bench.do("finish", 1, lambda: bench.pool.free_blocks(blocks[:2]), full=[])
    finding = bench.only("I12")
    assert (finding.operation, finding.page, bench.ledger.findings) == (2, 3, {"I12": 1})
    assert finding.message == "page 3 has 1 references, and 0 tables and 0 transfers name it"


def test_i12_counts_a_transfer_as_a_holder():
    bench = BlockBench()
    blocks = bench.lend(1, 1)
    bench.write(1, blocks)

    def store():
        bench.pool.touch(blocks)
        bench.watch.tell(EventKind.TRANSFER_BEGIN, "blocks", [1], None, "offload", token=7)

    def stored():
        bench.watch.tell(EventKind.TRANSFER_END, "blocks", [1], None, "done", token=7)
        bench.pool.free_blocks(blocks)

    bench.do("poll", -1, store)
    bench.free(1, blocks)
    bench.do("poll", -1, stored)
    bench.clean()


def test_i17_a_hit_on_what_nothing_has_written():
    """As vllm#57580: published when its slots were given, and its request was taken out of the step again."""
    bench = BlockBench()
    blocks = bench.lend(1, 2)
    bench.write(1, blocks[:1])
    bench.free(1, blocks)
    bench.match(2, full=blocks)
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (1, 4, 2)
    assert finding.message.startswith(
        "request 2 finds page 2 of full, but nothing has written it since it was lent"
    )


def test_i17_a_page_that_is_found_again_keeps_what_was_written():
    bench = BlockBench()
    blocks = bench.lend(1, 1)
    bench.write(1, blocks)
    bench.free(1, blocks)
    for rid in (2, 3):
        bench.match(rid, full=blocks)
        bench.do("admit", rid, lambda: bench.pool.touch(blocks), full=blocks)
        bench.free(rid, blocks)
    bench.clean()
    bench.free(4, bench.lend(4, BLOCKS))
    bench.match(5, full=blocks)
    assert bench.only("I17").operation == bench.number - 2


def test_i1_the_null_block_is_lent():
    bench = BlockBench()
    bench.pool.free_block_queue.append_n([bench.pool.blocks[0]])
    bench.do("extend", 1, lambda: bench.pool.get_new_blocks(BLOCKS + 1))
    assert "I1" in bench.ledger.findings


def test_a_block_that_is_linked_twice_behind_the_watch_is_counted_once_more():
    """The queue ends where the links lead back; its length is what the target counts."""
    bench = BlockBench()
    queue, block = bench.pool.free_block_queue, bench.pool.blocks[5]
    type(queue).append_n(queue, [block])  # past the watch
    assert bench.watch.free_list(bench.watch.source).tolist() == [1, 2, 3, 4, 5]
    bench.do("poll", -1, lambda: None)
    assert bench.only("I13").message.startswith("13 pages free, 12 expected")
