from hypothesis import given
from hypothesis import strategies as st

from sidr_rag.encoder.windows import chunks, length_batches, windows


@given(st.integers(0, 200), st.integers(1, 30))
def test_windows_cover_every_token_and_fit(length, size):
    ids = list(range(length))
    parts = windows(ids, size)
    assert {i for part in parts for i in part} == set(ids)
    assert all(len(part) <= size for part in parts)
    if length > size:
        assert {len(part) for part in parts} == {size}
        assert len(parts) == -(-length // size)


def test_a_text_that_fits_is_one_window():
    assert windows([1, 2, 3], 3) == [[1, 2, 3]]
    assert windows([], 3) == [[]]


def test_the_last_window_overlaps_instead_of_being_short():
    assert windows([0, 1, 2, 3, 4, 5, 6], 3) == [[0, 1, 2], [3, 4, 5], [4, 5, 6]]


@given(st.lists(st.integers(1, 20), max_size=40), st.integers(1, 60), st.integers(1, 8))
def test_batches_hold_every_item_once_and_stay_within_bounds(lengths, max_tokens, max_items):
    items = [(i, [0] * length) for i, length in enumerate(lengths)]
    batches = list(length_batches(items, max_tokens, max_items))
    assert sorted(i for batch in batches for i, _ in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= max_items
        assert len(batch) == 1 or len(batch) * max(len(ids) for _, ids in batch) <= max_tokens


def test_chunks():
    assert list(chunks([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
