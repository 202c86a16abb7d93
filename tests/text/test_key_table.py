from __future__ import annotations

import random

import numpy as np

from sidr_rag.text.key_table import KeyTable
from sidr_rag.text.ragged import RaggedStore, sums_by_run


def test_key_table_agrees_with_a_dict() -> None:
    random.seed(0)
    table, expected = KeyTable(), {}
    for size in (0, 1, 3, 2000, 5000, 100, 20_000):
        keys = [(random.randrange(3000) << random.choice((0, 48)), random.randrange(5)) for _ in range(size)]
        low = np.array([key[0] for key in keys], dtype=np.uint64)
        high = np.array([key[1] for key in keys], dtype=np.uint64)
        before = len(expected)
        numbers, new = table.numbers(low, high, before)
        for at in new.tolist():
            assert keys[at] not in expected
            expected[keys[at]] = len(expected)
        assert [expected[key] for key in keys] == numbers.tolist()
        assert len(expected) - before == len(new)


def test_numbers_may_have_gaps() -> None:
    table = KeyTable()
    one = np.array([7], dtype=np.uint64)
    assert table.numbers(one, one, 0)[0].tolist() == [0]
    assert table.numbers(one + one, one, 5000)[0].tolist() == [5000]
    both, new = table.numbers(np.array([7, 14], dtype=np.uint64), np.array([7, 7], dtype=np.uint64), 9000)
    assert both.tolist() == [0, 5000]
    assert len(new) == 0


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


def test_sums_by_run_allows_empty_runs() -> None:
    assert sums_by_run(np.array([1, 2, 3]), np.array([0, 2, 0, 1, 0])).tolist() == [0, 3, 0, 3, 0]
