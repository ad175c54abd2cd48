"""Seeds as a script's user writes them: `7`, or `1-20` with both ends counted."""

from __future__ import annotations


def seed_range(text: str) -> range:
    """Raises ValueError, one line, also where there is none: of no seeds anything could be said."""
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise ValueError(f"seeds {text!r}: are no numbers; write 7 or 1-20")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"seeds {text!r}: there is none; write the smaller one first")
    return seeds
