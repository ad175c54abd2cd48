"""Whether this Python can compile a source, without running any of it."""

from __future__ import annotations

import warnings


def syntax_error(source: bytes | str, place: str) -> str:
    """`PLACE:LINE: what`, or "" where there is none. `place` names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a tree is no concern of ours
            compile(source, place, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{place}:{error.lineno or 1}: {error.msg}"
    except ValueError as error:  # null bytes, before Python 3.12
        return f"{place}:1: {error}"
    return ""
