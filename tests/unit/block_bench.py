"""A pool whose blocks are shared by count, under watch, with one manager of tables: for the controls of the rules.

The pool is a small one of its own: a linked free queue, counts, and `touch`, which takes a cached block out of the
middle of the queue. What a test does wrong it does by these methods, as an engine would.
"""

from types import SimpleNamespace

import numpy as np

from stress.check.event import Cause, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe.block_watch import BlockWatch

BLOCKS, PAGE = 12, 4
GROUPS = ("full", "sliding")
OBSERVED = ("lends", "returns", "groups", "references", "tables", "counts", "writes", "transfers")


class Block:
    def __init__(self, block_id):
        self.block_id, self.ref_cnt = block_id, 0
        self.prev_free_block = self.next_free_block = None


class Queue:
    def __init__(self, blocks):
        self.fake_free_list_head, self.fake_free_list_tail = Block(-1), Block(-1)
        self.num_free_blocks = 0
        self.fake_free_list_head.next_free_block = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free_block = self.fake_free_list_head
        self.append_n(blocks)

    def popleft_n(self, count):
        taken = []
        for _ in range(count):
            block = self.fake_free_list_head.next_free_block
            self._unlink(block)
            taken.append(block)
        return taken

    def remove(self, block):
        self._unlink(block)

    def _unlink(self, block):
        before, after = block.prev_free_block, block.next_free_block
        before.next_free_block, after.prev_free_block = after, before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks):
        for block in blocks:
            last = self.fake_free_list_tail.prev_free_block
            last.next_free_block, block.prev_free_block = block, last
            block.next_free_block, self.fake_free_list_tail.prev_free_block = self.fake_free_list_tail, block
            self.num_free_blocks += 1


class Pool:
    """Counts as vLLM 0.20 does: all of a call first, then whatever stands at none goes on the queue."""

    def __init__(self):
        self.blocks = [Block(number) for number in range(BLOCKS + 1)]
        self.free_block_queue = Queue(self.blocks[1:])

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_new_blocks(self, count):
        taken = self.free_block_queue.popleft_n(count)
        for block in taken:
            block.ref_cnt = 1
        return taken

    def touch(self, blocks):
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        blocks = list(blocks)
        for block in blocks:
            block.ref_cnt -= 1
        self.free_block_queue.append_n([block for block in blocks if block.ref_cnt == 0])


class BlockBench:
    """Operations are numbered from 1; `tables` are told at an operation's end, as an engine's are."""

    def __init__(self, rules=None, pool=None, also=()):
        self.pool = pool or Pool()
        self.found = {}  # request -> blocks by group, that a match finds
        self.manager = SimpleNamespace(block_pool=self.pool, get_computed_blocks=self._match)
        shape = PoolShape("blocks", BLOCKS, PAGE, 0)
        self.ledger = Ledger((shape,), (), 2, rules, (*OBSERVED, *also))
        self.watch = BlockWatch(self.manager, shape, GROUPS, self.ledger)
        self.number = 0

    def _match(self, request):
        return SimpleNamespace(blocks=self.found[int(request.request_id)]), 0

    def do(self, kind, rid, call, **tables):
        """One operation; afterwards the request's tables are `tables`, block by block, 0 for a hole."""
        self.number += 1
        self.watch.begin(Cause(self.number, kind, rid, ""), self.number * 1000)
        answer = call()
        for group, blocks in tables.items():
            ids = np.array([block and block.block_id for block in blocks], dtype=np.int64)
            self.watch.tell(EventKind.HOLD, "blocks", ids, None, "", table=group)
        self._end()
        return answer

    def _end(self):
        free = self.pool.get_num_free_blocks()
        self.watch.tell(EventKind.COUNTS, "blocks", [BLOCKS, free, 0, 0], None, "end")
        self.ledger.settle(self.number, self.number * 1000)

    def lend(self, rid, count, group="full"):
        """A request that is admitted with new blocks in one table."""
        self.number += 1
        self.watch.begin(Cause(self.number, "admit", rid, ""), self.number * 1000)
        blocks = self.pool.get_new_blocks(count)
        ids = np.array([block.block_id for block in blocks], dtype=np.int64)
        self.watch.tell(EventKind.HOLD, "blocks", ids, None, "", table=group)
        self._end()
        return blocks

    def write(self, rid, blocks, group="full"):
        ids = [block.block_id for block in blocks]
        told = "blocks", ids, None, ""
        self.do("commit", rid, lambda: self.watch.tell(EventKind.WRITTEN, *told, table=group))

    def read(self, rid, pages, method="", group="full"):
        """The pass of a commit reads these pages of the request; `whole`: the last of them too to its end."""
        told = "blocks", np.array(pages, dtype=np.int64), None, method
        self.do("commit", rid, lambda: self.watch.tell(EventKind.READ, *told, token=0, table=group))

    def promise(self, rid, blocks, kind=EventKind.PROMISED, group="full"):
        """Within an operation: the pass of its step will write these blocks of the request, or (WITHDRAWN) will not."""
        with self.watch.about(rid):
            self.watch.tell(kind, "blocks", [block.block_id for block in blocks], None, "", table=group)

    def find(self, rid, blocks):
        """Within an operation: the request finds these in the prefix cache."""
        self.found[rid] = (blocks, [])
        self.manager.get_computed_blocks(SimpleNamespace(request_id=str(rid)))

    def match(self, rid, **found):
        self.found[rid] = tuple(found.get(group, []) for group in GROUPS)
        request = SimpleNamespace(request_id=str(rid))
        self.do("admit", rid, lambda: self.manager.get_computed_blocks(request))

    def free(self, rid, blocks, **tables):
        self.do("finish", rid, lambda: self.pool.free_blocks(reversed(blocks)), **(tables or {"full": []}))

    def only(self, rule):
        """The one finding kept; there must be no other rule."""
        assert list(self.ledger.findings) == [rule], self.ledger.kept
        (finding,) = self.ledger.kept
        return finding

    def clean(self):
        assert self.ledger.findings == {} and not self.ledger.crashed, (self.ledger.kept, self.ledger.crashed)
