"""Readers of recorded traces: the format is found by content, never by the file's name; plain or gzip.

    Weka / kv-cache-tester   raw JSON (one trace, an array, or a trace a line) or packed JSONL (keep/new runs)
    Mooncake                 JSONL with timestamp (ms), input_length, output_length, hash_ids (512-token blocks)

A bad row raises TraceError, or is counted and left out with on_bad_row = "skip". A file that is missing, empty, cut or
not a trace raises in either case.
"""

from __future__ import annotations

import msgspec

from stress.workload.errors import TraceError, WorkloadError
from stress.workload.readers.mooncake import read_mooncake
from stress.workload.readers.source import NOT_JSON, Source, open_source
from stress.workload.readers.weka import read_weka
from stress.workload.sessions import Sessions

_REFUSED = {
    "input_tokens_total": "a TraceLab round has token counts but no block ids",
    "chat_id": "Bailian rows (16-token blocks) are not read",
    "Request tokens": "BurstGPT rows have lengths but no block ids",
}
_CURE = (
    "use a Weka / kv-cache-tester trace (requests with hash_ids) or a Mooncake trace (JSONL with hash_ids)"
)


def read_trace(path: str, on_bad_row: str = "fail") -> Sessions:
    """The sessions of a trace file. ``on_bad_row``: "fail" raises at a bad row, "skip" counts and leaves it out."""
    if on_bad_row not in ("fail", "skip"):
        raise WorkloadError(f'workload.on_bad_row = {on_bad_row!r}: use "fail" or "skip"')
    return read_source(open_source(path), on_bad_row)


def read_source(source: Source, on_bad_row: str) -> Sessions:
    """As `read_trace`, of a file that is open already."""
    return (read_weka if trace_format(source).startswith("weka") else read_mooncake)(source, on_bad_row)


def trace_format(source: Source) -> str:
    """ "weka raw", "weka packed" or "mooncake", from the first row that decodes."""
    broken: TraceError | None = None
    for line, text in source.first_documents():
        try:
            row = msgspec.json.decode(text)
        except NOT_JSON as error:
            broken = broken or source.cut(line, error)
            continue
        if isinstance(row, dict) and "requests" in row:
            return "weka packed" if b'"keep"' in text else "weka raw"
        if (
            isinstance(row, dict)
            and ("hash_ids" in row or {"timestamp", "input_length"} & set(row))
            and "chat_id" not in row
        ):
            return "mooncake"
        if isinstance(row, dict):
            known = next(
                (why for name, why in _REFUSED.items() if name in row), "no trace format has such rows"
            )
            raise TraceError(source.path, line, "", f"{known}; {_CURE}")
    if broken and (source.data.lstrip()[:1] == b"{" or "nested" in broken.reason):
        raise broken
    if b"," in source.data.split(b"\n", 1)[0] and source.data.lstrip()[:1] not in (b"{", b"["):
        raise TraceError(source.path, 1, "", f"a CSV trace has lengths but no block ids; {_CURE}")
    raise TraceError(source.path, 1, "", f"not a trace: no row is a JSON object; {_CURE}")
