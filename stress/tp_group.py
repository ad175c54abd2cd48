"""A rank's side of its attention-TP group: what it tells at an exchange, and what it takes from what all have told.

The ranks of a group serve the same requests and must take the same decisions. At each exchange a rank tells how it
stands (number and digest of its last operation), which logical collectives it takes part in, what its store holds of
the requests that wait, and how its transfers stand. What all have told takes effect from here on. Where the group no
longer decides alike, a collective is not joined by all, or a member is gone, a server would hang: here each rank goes
on alone with its own word, so that a run ends and its findings stand. The rules that judge this are in check/.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np

from linker.agreed_linker import AgreedLinker
from stress.check.event import Cause, Event, EventKind
from stress.check.shadow import Ledger
from stress.config_schema import Layout
from stress.operation import KIND_CODES, Kind, Operation
from stress.step_plan import PLAN_WORDS
from stress.tp_word import Collective, Decision, Lookup, TPWord, lookup_word

PLAN, LOOKUPS, TRANSFERS = "step plan", "lookups", "transfers"
DECISIONS_TOLD = 65_536
_NOTHING = np.empty(0, dtype=np.int64)
_ROWLESS = frozenset({Kind.EVICT})


class TPGroup:
    """Of the rank at `index` of `layout`. `agreed`: its linker, None where lookups and transfers are not agreed.

    `keys_of(rid)`: keys by which a waiting request looks up. `ledger` is shown what the group has told.
    """

    def __init__(
        self,
        layout: Layout,
        index: int,
        agreed: AgreedLinker | None,
        keys_of: Callable[[int], np.ndarray],
        ledger: Ledger,
    ) -> None:
        size = layout.attn_tp_size
        self.layout, self.index, self.agreed = layout, index, agreed
        self.first = index - layout.attn_tp_rank(index)
        self.members = range(self.first, self.first + size)
        self.observes = frozenset({"collectives", "decisions"} | ({"lookups"} if agreed else set()))
        self.alone = False
        self.known: set[int] = set()  # waiting requests whose lookup is agreed
        self._keys_of, self._ledger = keys_of, ledger
        self._number, self._digest, self._at_us = 0, 0, 0
        self._state = b""
        self._decisions: list[Decision] = []  # since the members last stood alike
        self._tells_decisions = False
        self._parted: set[int] = set()  # first ranks of the groups that have parted
        self._asked: dict[int, np.ndarray] = {}

    def may_admit(self, rid: int) -> bool:
        """Whether it is agreed what the group can restore of a request that waits."""
        return self.alone or rid in self.known

    # Operations

    def fold(self, operation: Operation, standing: Iterable[int]) -> None:
        """After an operation: what was asked and answered, and how pools, tree and locks stand, O(1) integers."""
        answer = operation.answer or ()
        kind = KIND_CODES[operation.kind]
        words = array("q", (operation.number, kind, operation.at_us, len(operation.rows)))
        for row in operation.rows:
            words.extend(row)
        words.append(len(answer))
        words.extend(answer)
        words.extend(standing)
        self._state = blake2b(self._state + words.tobytes(), digest_size=8).digest()
        self._number = operation.number
        self._digest = int.from_bytes(self._state, "little", signed=True)
        rid = operation.rows[0][0] if len(operation.rows) == 1 and operation.kind not in _ROWLESS else -1
        if len(self._decisions) < DECISIONS_TOLD:
            first, second = (*answer, -1, -1)[:2]
            self._decisions.append(Decision(self._number, self._digest, kind, rid, first, second))

    # What it tells

    def word(self, waiting: Sequence[int], now_us: int, ended: bool) -> TPWord:
        """`waiting`: requests that are not admitted yet, in order. `ended`: its work ended before they all did."""
        collectives, lookups, transfers = [self._collective(PLAN, PLAN_WORDS)], [], []
        if self.agreed is not None and not ended:
            self.agreed.collect(now_us)
            self.known.intersection_update(waiting)
            lookups = self._lookups([rid for rid in waiting if rid not in self.known])
            if lookups:
                collectives.append(self._collective(LOOKUPS, sum(lookup.pages for lookup in lookups)))
            if self.takes_part():
                transfers = self.agreed.verdicts()
                collectives.append(self._collective(TRANSFERS, len(transfers)))
        decisions = self._decisions if self._tells_decisions else []
        self._tells_decisions = False
        return TPWord(ended, self._number, self._digest, collectives, lookups, transfers, decisions)

    def takes_part(self) -> bool:
        """Whether the group has transfers under way. Asked of what all members know, never of what this one has."""
        return self.agreed.under_way() > 0

    def ranks_of(self, collective: str) -> range:
        """The ranks that take part in a collective: those that run it at the same step for the same requests."""
        return range(self.layout.ranks) if collective == PLAN else self.members

    def _collective(self, name: str, size: int) -> Collective:
        ranks = self.ranks_of(name)
        return Collective(ranks.start, len(ranks), name, size)

    def _lookups(self, rids: list[int]) -> list[Lookup]:
        self._asked = {rid: self._keys_of(rid) for rid in rids}
        return [lookup_word(rid, *self.agreed.told_of(keys)) for rid, keys in self._asked.items()]

    # What it hears

    def hear(self, words: Sequence[TPWord | None], now_us: int) -> bool:
        """The words of all ranks, None for one that is lost. True where a group has parted at this very exchange: its
        members tell their decisions at one exchange more, so nobody may end at this one."""
        own, self._at_us = words[self.index], now_us
        present = {rank: word for rank, word in enumerate(words) if word is not None and not word.ended}
        parted = self._newly_parted(present)
        self._show_decisions(words)
        if own.ended:
            return bool(parted)
        self._show_collectives(present)
        joined = all(rank in present for rank in self.members) and self._all_joined(own, present)
        if self.first in parted:
            self._tells_decisions = True
        elif self.first not in self._parted:
            self._decisions = []
        if not self.alone and (not joined or self.first in self._parted):
            self._go_alone()
        self._take(own, present, now_us)
        return bool(parted)

    def _newly_parted(self, present: dict[int, TPWord]) -> set[int]:
        size, parted = self.layout.attn_tp_size, set()
        for first in range(0, self.layout.ranks, size):
            stand = {(w.number, w.digest) for r in range(first, first + size) if (w := present.get(r))}
            if len(stand) > 1 and first not in self._parted:
                parted.add(first)
        self._parted |= parted
        return parted

    def _all_joined(self, own: TPWord, present: dict[int, TPWord]) -> bool:
        """Whether all ranks of each collective of this one have told the same sequence over these ranks."""
        for ranks in {(c.first, c.count) for c in own.collectives}:
            mine = [c for c in own.collectives if (c.first, c.count) == ranks]
            for rank in range(ranks[0], ranks[0] + ranks[1]):
                word = present.get(rank)
                if word and [c for c in word.collectives if (c.first, c.count) == ranks] != mine:
                    return False
        return True

    def _go_alone(self) -> None:
        self.alone = True
        if self.agreed is not None:
            self.agreed.go_alone()
            self._tell(EventKind.RESTORABLE, _NOTHING, _NOTHING, -1, -1)

    def _take(self, own: TPWord, present: dict[int, TPWord], now_us: int) -> None:
        """What is agreed from here on."""
        if self.agreed is None:
            return
        if not self.alone:
            for member, rank in enumerate(self.members):
                self._hear_lookups(member, present[rank].lookups)
        self.known.update(self._asked)
        self._asked = {}
        if self.alone:
            # Also where a fault keeps this rank out of the collective: nobody else will end its transfers.
            self.agreed.agree([self.agreed.verdicts()], now_us)
        elif own.transfers:
            told = [present[rank].transfers for rank in self.ranks_of(TRANSFERS) if rank in present]
            self.agreed.agree(told, now_us)

    def _hear_lookups(self, member: int, lookups: Sequence[Lookup]) -> None:
        for lookup in lookups:
            keys = self._asked.get(lookup.rid)
            if keys is not None:
                full, swa = lookup.masks()
                self.agreed.hear_lookup(member, keys, full, swa)
                self._tell(EventKind.RESTORABLE, keys[full], swa[full].astype(np.int64), member, lookup.rid)

    # What the rules see

    def _show_collectives(self, present: dict[int, TPWord]) -> None:
        names = {PLAN: 0, LOOKUPS: 1, TRANSFERS: 2}
        rows = [
            (rank, c.first, c.count, names[c.name], c.size)
            for rank, word in present.items()
            for c in word.collectives
        ]
        self._tell(EventKind.COLLECTIVES, np.array(rows, dtype=np.int64).ravel(), None, self.index, -1)

    def _show_decisions(self, words: Sequence[TPWord | None]) -> None:
        rows = [
            (rank, *decision)
            for rank in self.members
            if words[rank] is not None
            for decision in words[rank].decisions
        ]
        if rows:
            self._tell(EventKind.DECISIONS, np.array(rows, dtype=np.int64).ravel(), None, self.index, -1)

    def _tell(
        self, kind: EventKind, pages: np.ndarray, peers: np.ndarray | None, token: int, rid: int
    ) -> None:
        cause = Cause(self._number, "exchange", rid, "")
        pool = next(iter(self._ledger.shadow.pools))
        self._ledger.observe(Event(kind, pool, pages, peers, cause, -1, "exchange", self._at_us, token))
