"""The reference's ring mode: what the map names, and that a hit leaves the prompt's last window to be computed."""

from reference_bench import KEYS, PAGE, assert_whole, engine, finish, prefill, spec

RING = "pool.swa_ring=true"
PLACES = 4  # a window of two pages touches three, and drafts reach into a fourth


def named(target, pages) -> list[int]:
    """Pages of the ring that the map names for FULL pages, 0: none."""
    mapping = target.allocators().full_to_swa_index_mapping
    return [int(mapping[page * PAGE]) // PAGE for page in pages]


def ours(target, rid: int) -> list[int]:
    return named(target, target.table(rid))


def test_the_map_names_the_last_pages_of_a_prompt_and_nothing_when_the_request_has_gone():
    target = engine("filter-per-group", RING)
    prefill(target, spec(1, KEYS, 20 * PAGE + 30))
    row = target._rows[1].ring_row.row * PLACES
    pages = target.table(1).copy()
    # Pages 17 to 20 of the request, each at its number modulo the places of the row.
    assert ours(target, 1) == [0] * 17 + [row + 1, row + 2, row + 3, row]
    assert target.reserve([(1, 2 * 40)])
    assert ours(target, 1) == [0] * 18 + [row + 2, row + 3, row, row + 1]
    finish(target, 1)
    assert named(target, pages) == [0] * len(pages)
    assert_whole(target)


def test_a_hit_and_a_load_leave_the_last_window_of_the_prompt():
    prompt = 20 * PAGE + 30
    target = engine("filter-per-group", RING)
    prefill(target, spec(1, KEYS, prompt))
    finish(target, 1)
    hit = prefill(target, spec(2, KEYS, prompt))
    assert (hit.cached, hit.loaded) == ((prompt - 128) // PAGE * PAGE, 0)
    finish(target, 2)
    loading = engine("filter-per-group", RING, warm=KEYS)
    assert prefill(loading, spec(3, KEYS, prompt))[:2] == (0, 18 * PAGE)
    short = prefill(loading, spec(4, KEYS, 100))
    assert (short.cached, short.loaded) == (0, 0), "a prompt shorter than the window is computed whole"


def test_who_computes_a_page_again_clears_no_entry_of_the_one_whose_page_it_is():
    target = engine("filter-per-group", RING)
    prompt = 20 * PAGE + 30
    prefill(target, spec(1, KEYS, prompt))
    before = ours(target, 1)
    prefill(target, spec(2, KEYS, prompt))
    # Pages 18 and 19 were computed again, and given up for the tree's, which are those of request 1.
    assert target.table(2)[:20].tolist() == target.table(1)[:20].tolist()
    assert ours(target, 1) == before
    finish(target, 2)
    assert ours(target, 1) == before
    finish(target, 1)
    assert_whole(target)


def test_what_a_pass_writes_and_reads_in_the_row():
    target = engine("filter-per-group", RING)
    prefill(target, spec(1, KEYS, 20 * PAGE + 30))
    row = target._rows[1].ring_row.row * PLACES
    passed = target.row_pass(1, 20 * PAGE + 30)
    # The prompt ends in page 20; its window of 128 tokens begins in page 18.
    assert (passed.written_as, passed.read_as) == ([17, 18, 19, 20], [18, 19, 20])
    assert passed.read == [row + 2, row + 3, row]
    target.reserve([(1, 40)])
    target.commit([(1, 34)])
    passed = target.row_pass(1, 34)
    assert (passed.written_as, passed.read_as) == ([20], [19, 20])
    assert passed.written == [row]
