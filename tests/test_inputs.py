"""What callers hand in, and the ids that are made for them."""

from __future__ import annotations

import string
import time
from itertools import islice

from sidr_rag.inputs import _new_ids, rows_of_columns


def test_made_ids_are_distinct_and_rise() -> None:
    ids: list[str] = []
    list(rows_of_columns([""] * 5000, None, None, None, ids))
    assert len(set(ids)) == 5000
    assert all(len(i) == 32 and set(i) <= set(string.hexdigits.lower()) for i in ids)
    assert ids == sorted(ids)
    time.sleep(0.001)
    assert next(_new_ids()) > ids[-1]


def test_ids_made_at_the_same_moment_differ(monkeypatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
    assert len({i for _ in range(50) for i in islice(_new_ids(), 200)}) == 50 * 200


def test_subclasses_of_str_become_plain_strings() -> None:
    class Text(str):
        def __str__(self) -> str:
            return "another text"

    given: list[str] = []
    (row,) = rows_of_columns([Text("a river")], [Text("id")], None, [Text("title")], given)
    assert (row.id, row.title, row.text) == ("id", "title", "a river")
    assert {type(value) for value in (row.id, row.title, row.text)} == {str}
    assert type(given[0]) is str
