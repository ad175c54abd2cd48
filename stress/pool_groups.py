"""`pool.groups`: the groups of layers of a model, each with its own table of blocks in the one pool.

full[:TOKENS]                  every position sees all before it; TOKENS a block, pool.page_size by default
sliding[:TOKENS[:WINDOW]]      a position sees WINDOW tokens, its own among them; pool.window_tokens by default
chunked[:TOKENS[:CHUNK]]       a position sees its own chunk of CHUNK tokens; pool.window_tokens by default
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from stress.engine.groups import Group

KINDS = ("full", "sliding", "chunked")
_FORMS = "full[:TOKENS], sliding[:TOKENS[:WINDOW]] or chunked[:TOKENS[:CHUNK]]"


def groups_of(pool) -> tuple[Group, ...]:
    """`pool`: the [pool] table. Several of one kind are numbered from 2 on. Raises ValueError, one line."""
    named = Counter()
    return tuple(_group(text, pool, named) for text in pool.groups or KINDS[:2])


def broken_groups(pool) -> Iterator[str]:
    """What of `pool.groups` can't be, one line each."""
    try:
        groups = groups_of(pool)
    except ValueError as error:
        yield str(error)
        return
    if all(not group.sees_all for group in groups):
        yield "pool.groups: no group sees all positions, so no prefix is ever whole; give one full group"
    if any(group.chunk for group in groups) and len({group.page_size for group in groups}) > 1:
        yield "pool.groups: chunked groups go with blocks of one size; give all groups the same TOKENS"
    for group in groups:
        if group.page_size % pool.page_size:
            yield (
                f"pool.groups: blocks of {group.page_size} tokens are no multiple of pool.page_size = "
                f"{pool.page_size}, the tokens that one hash stands for; give a multiple, or a smaller pool.page_size"
            )


def _group(text: str, pool, named: Counter) -> Group:
    kind, *numbers = text.split(":")
    if kind not in KINDS or len(numbers) > (1 if kind == "full" else 2):
        raise ValueError(f"pool.groups: {text!r} is no group; write {_FORMS}")
    if not all(re.fullmatch(r"0*[1-9][0-9]{0,9}", number) for number in numbers):
        raise ValueError(
            f"pool.groups: {text!r} has a size that is no number of 1 to 10 digits; write {_FORMS}"
        )
    tokens, span, *_ = (*map(int, numbers), *(pool.page_size, pool.window_tokens)[len(numbers) :], 0)
    named[kind] += 1
    name = kind if named[kind] == 1 else f"{kind}{named[kind]}"
    if kind == "full":
        return Group(name, tokens)
    return Group(name, tokens, window=span) if kind == "sliding" else Group(name, tokens, chunk=span)
