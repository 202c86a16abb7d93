from __future__ import annotations

import random

import numpy as np
import pytest

from sidr_rag.text.key_table import PADDING_BYTES, KeyTable, SpanNumbering
from sidr_rag.text.ragged import RaggedStore, sums_by_run


def test_key_table_agrees_with_a_dict() -> None:
    random.seed(0)
    table, expected = KeyTable(16), {}
    for size in (0, 1, 3, 2000, 5000, 100, 20_000):
        keys = [(random.randrange(3000) << random.choice((0, 48)), random.randrange(5)) for _ in range(size)]
        low = np.array([key[0] for key in keys], dtype=np.uint64)
        high = np.array([key[1] for key in keys], dtype=np.uint64)
        before = len(expected)
        numbers, new = table.numbers((low, high), before)
        for at in new.tolist():
            assert keys[at] not in expected
            expected[keys[at]] = len(expected)
        assert [expected[key] for key in keys] == numbers.tolist()
        assert len(expected) - before == len(new)


def test_numbers_may_have_gaps() -> None:
    table = KeyTable(8)
    one = np.array([7], dtype=np.uint64)
    assert table.numbers((one,), 0)[0].tolist() == [0]
    assert table.numbers((one + one,), 5000)[0].tolist() == [5000]
    both, new = table.numbers((np.array([7, 14], dtype=np.uint64),), 9000)
    assert both.tolist() == [0, 5000]
    assert len(new) == 0


@pytest.mark.parametrize("width", [8, 16, 32])
def test_find_adds_nothing(width) -> None:
    table = KeyTable(width)
    keys = np.arange(0, 4000, 2, dtype=np.uint64)
    every = np.arange(4000, dtype=np.uint64)
    n_parts = width // 8
    numbers, _ = table.numbers((keys,) * n_parts, 0)
    for _ in range(2):
        found = table.find((every,) * n_parts)
        assert found[::2].tolist() == numbers.tolist()
        assert set(found[1::2].tolist()) == {-1}
    for different in range(1, n_parts):  # every part of a key counts
        key = [keys] * n_parts
        key[different] = keys + np.uint64(1)
        assert (table.find(tuple(key)) == -1).all()


def test_span_numbering_agrees_with_a_dict() -> None:
    random.seed(2)
    numbering, expected = SpanNumbering(), {b"": 0}
    for size in (0, 1, 50, 3000, 100):
        texts = [random.choice((b"a", b"bc", b"def")) * random.randrange(21) for _ in range(size)]
        texts = [text + random.randbytes(random.randrange(2)).replace(b"\0", b"x") for text in texts]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        numbers, new = numbering.numbers(b"".join([*texts, bytes(PADDING_BYTES)]), starts, lengths)
        for at in new.tolist():
            assert texts[at] not in expected
            expected[texts[at]] = len(expected)
        assert [expected[text] for text in texts] == numbers.tolist()
        assert numbering.count == len(expected)


def test_strings_of_over_64_bytes_are_forgotten() -> None:
    numbering = SpanNumbering()
    data, starts, lengths = b"x" * 65 + b"y" * 64 + bytes(PADDING_BYTES), np.array([0, 65]), np.array([65, 64])
    assert numbering.numbers(data, starts, lengths)[0].tolist() == [1, 2]
    numbers, new = numbering.numbers(data, starts, lengths)
    assert numbers.tolist() == [3, 2]
    assert new.tolist() == [0]


def test_ragged_store_gives_back_what_was_appended() -> None:
    random.seed(1)
    store, expected = RaggedStore(np.uint16), []
    for _ in range(40):
        entries = [[random.randrange(60_000) for _ in range(random.randrange(6))] for _ in range(random.randrange(200))]
        store.append(np.array([v for e in entries for v in e]), np.array([len(e) for e in entries], dtype=np.int64))
        expected += entries
    wanted = [random.randrange(len(expected)) for _ in range(1000)]
    values, lengths = store.take(np.array(wanted))
    assert values.tolist() == [v for n in wanted for v in expected[n]]
    assert lengths.tolist() == [len(expected[n]) for n in wanted]


def test_ragged_store_takes_entries_in_any_order() -> None:
    store = RaggedStore(np.uint16)
    store.append(np.array([7]), np.array([1]))
    store.put(np.array([3, 1, 2]), np.array([30, 31, 10]), np.array([2, 1, 0]))
    values, lengths = store.take(np.arange(4))
    assert values.tolist() == [7, 10, 30, 31]
    assert lengths.tolist() == [1, 1, 0, 2]
    assert (store.n_entries, store.n_values) == (4, 4)


def test_sums_by_run_allows_empty_runs() -> None:
    assert sums_by_run(np.array([1, 2, 3]), np.array([0, 2, 0, 1, 0])).tolist() == [0, 3, 0, 3, 0]
