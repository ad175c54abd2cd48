"""Stamps of a pool: what was written is found, what was not is told with both identities, on a host and a device."""

import numpy as np
import pytest
import torch
from test_probe_device import NoWaiting

from stress.check.event import PoolShape
from stress.check.slot_label import NOTHING, describe, label_of, position_of, request_of
from stress.content.arrays import DeviceArrays, HostArrays
from stress.content.pass_writes import PassWrites
from stress.content.published import Published
from stress.content.span import Span, span_of
from stress.content.stamps import FullStamps, SampledStamps

PAGE = 4
SHAPE = PoolShape("full", 16, PAGE, 0)
KEYS = np.array([1001, 1002, 1003, 1004], dtype=np.int64)
OTHERS = KEYS + 500
TABLE = np.array([5, 3, 9, 7], dtype=np.int64)
KINDS = [
    (stamps, arrays)
    for stamps in (SampledStamps, FullStamps)
    for arrays in (HostArrays(), DeviceArrays("cpu"))
]


def told(difference):
    """(pages that differ, page of the first slot, found label, expected label, forgotten), or None where none does."""
    if difference is None or not int(difference.pages[0]):
        return None
    pages, peers = (np.asarray(part).tolist() for part in difference)
    return pages[0], pages[1] // PAGE, *peers


def row(rid, keys, lo, hi):
    return span_of(rid, TABLE, keys, lo, hi, PAGE)


@pytest.mark.parametrize(("kind", "arrays"), KINDS)
def test_what_was_written_is_found_in_whatever_steps_it_was_written(kind, arrays):
    stamps = kind(SHAPE, arrays)
    for lo, hi in ((0, 6), (6, 7), (7, 9), (9, 14)):
        stamps.write(row(4, KEYS, lo, hi))
        assert told(stamps.compare(row(4, KEYS, 0, hi))) is None
    # Nobody wrote that far, and the last page's stamp is not that of its end.
    assert told(stamps.compare(row(4, KEYS, 0, 15)))[:2] == (1, 7)
    assert told(stamps.compare(row(4, KEYS, 0, 16)))[:2] == (1, 7)


@pytest.mark.parametrize(("kind", "arrays"), KINDS)
def test_a_page_that_two_requests_write_is_told_with_both(kind, arrays):
    stamps = kind(SHAPE, arrays)
    stamps.write(row(4, KEYS, 0, 16))
    stamps.write(Span(TABLE[1:3], OTHERS[:2], 0, PAGE, 9, 0))
    pages, page, found, expected, forgotten = told(stamps.compare(row(4, KEYS, 0, 16)))
    assert (pages, page, forgotten) == (2, 3, 0)
    assert (describe(found), describe(expected)) == ("position 0 of request 9", "position 4 of request 4")
    assert told(stamps.compare(row(4, KEYS, 0, 4))) is None


@pytest.mark.parametrize(("kind", "arrays"), KINDS)
def test_a_page_that_is_lent_anew_forgets_even_the_same_tokens(kind, arrays):
    stamps = kind(SHAPE, arrays)
    stamps.write(row(4, KEYS, 0, 16))
    stamps.lend(arrays.place(TABLE[2:3]))
    pages, page, found, expected, forgotten = told(stamps.compare(row(4, KEYS, 0, 16)))
    assert (pages, page, forgotten) == (1, 9, 1) and found == expected
    stamps.write(row(4, KEYS, 8, 12))
    assert told(stamps.compare(row(4, KEYS, 0, 16))) is None


@pytest.mark.parametrize(("kind", "arrays"), KINDS)
def test_a_pool_behind_a_mapping_is_read_where_the_mapping_says_now(kind, arrays):
    stamps = kind(SHAPE, arrays)
    mapping = torch.zeros(20 * PAGE, dtype=torch.int64)

    def bind(page, peer):
        mapping[page * PAGE : (page + 1) * PAGE] = torch.arange(peer * PAGE, (peer + 1) * PAGE)

    for page, peer in zip(TABLE.tolist(), (1, 2, 8, 4), strict=True):
        bind(page, peer)
    stamps.write(row(4, KEYS, 0, 14), mapping)
    assert told(stamps.compare(row(4, KEYS, 0, 14), mapping)) is None
    bind(9, 2)  # two source pages at one target page
    pages, page, found, expected, _ = told(stamps.compare(row(4, KEYS, 0, 14), mapping))
    assert (pages, page, position_of(found), position_of(expected)) == (1, 2, 4, 8)
    mapping[9 * PAGE : 10 * PAGE] = 0  # no peer: padding, which holds nothing
    assert told(stamps.compare(row(4, KEYS, 0, 14), mapping))[:3] == (1, 0, NOTHING)
    mapping[9 * PAGE : 10 * PAGE] = 10**6  # no slot at all
    assert told(stamps.compare(row(4, KEYS, 0, 14), mapping))[:2] == (1, 10**6 // PAGE)


@pytest.mark.parametrize("arrays", [HostArrays(), DeviceArrays("cpu")])
def test_every_byte_of_a_slot_is_compared(arrays):
    stamps = FullStamps(SHAPE, arrays, bytes_per_token=32)
    stamps.write(row(4, KEYS, 0, 16))
    assert told(stamps.compare(row(4, KEYS, 0, 16))) is None
    assert stamps._stamps.shape == (17, PAGE * 4)
    stamps._stamps[7, 6] += 1  # the third word of the second token
    assert told(stamps.compare(row(4, KEYS, 0, 16)))[:2] == (1, 7)


def test_only_every_slot_sees_a_token_in_the_middle_of_a_page():
    found = []
    for kind in (SampledStamps, FullStamps):
        stamps = kind(SHAPE, HostArrays())
        stamps.write(row(4, KEYS, 0, 16))
        mapping = torch.arange(20 * PAGE)
        mapping[3 * PAGE + 1] = 5 * PAGE + 1
        found.append(told(stamps.compare(row(4, KEYS, 0, 16), mapping)))
    assert found[0] is None
    assert found[1][:2] == (1, 5)


@pytest.mark.parametrize("kind", [SampledStamps, FullStamps])
def test_on_a_device_nothing_is_waited_for(kind):
    with NoWaiting():
        stamps = kind(SHAPE, DeviceArrays("cpu"))
        mapping = torch.arange(20 * PAGE)
        stamps.lend(torch.tensor([5, 3]))
        stamps.write(row(4, KEYS, 0, 14), mapping)
        difference = stamps.compare(row(4, KEYS, 0, 14), mapping)
    assert difference.pages.tolist()[0] == 0


def test_a_label_names_a_request_and_a_position():
    label = label_of(11_449, 131_071)
    assert (request_of(label), position_of(label)) == (11_449, 131_071)
    assert describe(label) == "position 131071 of request 11449"
    assert describe(NOTHING) == "nothing"


def test_what_was_published_is_known_by_page_and_a_page_beyond_the_pool_is_nothing():
    published = Published(pages=10, page_size=PAGE)
    published.record(Span(np.array([5, 99, 9]), KEYS[:3], 0, PAGE, 7, 2))
    assert published.keys(np.array([5, 3, 9, 99, -1])).tolist() == [1001, 0, 1003, 0, 0]
    span = published.span(np.array([3, 9, 99]))
    assert (span.pages.tolist(), span.keys.tolist()) == ([9], [1003])
    assert span.page_labels(PAGE).tolist() == [label_of(7, 4 * PAGE)]


@pytest.mark.parametrize("closely", [1, 8])
def test_a_decode_in_somebody_elses_page_is_written_though_nobody_watches_who_decodes(closely):
    stamps = SampledStamps(SHAPE, HostArrays())
    writes = PassWrites(stamps, None, None, closely)
    mine, theirs = np.array([1, 4, 9], dtype=np.int64), np.array([6, 2, 8], dtype=np.int64)
    writes.write(8, 0, 12, mine, KEYS[:3], windowed=False)
    writes.write(9, 0, 9, theirs, OTHERS[:3], windowed=False)
    writes.write(9, 9, 10, theirs, OTHERS[:3], windowed=False)
    whole = span_of(8, mine, KEYS[:3], 0, 12, PAGE)
    assert told(stamps.compare(whole)) is None
    stale = np.array([6, 2, 1], dtype=np.int64)
    writes.write(9, 10, 11, stale, OTHERS[:3], windowed=False)
    pages, page, found, *_ = told(stamps.compare(whole))
    assert (pages, page, describe(found)) == (1, 1, "position 10 of request 9")


def test_a_decode_inside_its_own_page_is_left_out_where_nobody_watches():
    stamps = SampledStamps(SHAPE, HostArrays())
    writes = PassWrites(stamps, None, None, 8)
    for rid, table in ((8, TABLE), (9, TABLE + 1)):
        for lo in range(6):
            writes.write(rid, lo, lo + 1, table, KEYS, windowed=False)
    assert told(stamps.compare(row(8, KEYS, 0, 6))) is None
    other = span_of(9, TABLE + 1, KEYS, 0, 6, PAGE)
    assert told(stamps.compare(other))[:2] == (1, TABLE[1] + 1), (
        "of its last page only the first token is known"
    )
    assert told(stamps.compare(other._replace(pages=other.pages[:1], keys=KEYS[:1], end=PAGE))) is None
