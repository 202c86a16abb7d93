"""Merging beside writers: what changes while a merge is being built stays changed."""

from __future__ import annotations

import logging
import threading

import pytest
from stub_encoders import stub_settings

from sidr_rag.errors import StorageError
from sidr_rag.index import writer as writer_module
from sidr_rag.index.merger import Merger
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store


def test_steps_run_until_none_is_due() -> None:
    left = [3]

    def step() -> bool:
        left[0] -= 1
        return left[0] > 0

    merger = Merger(step)
    merger.wait()
    assert left == [3]
    merger.wake()
    merger.wait()
    assert left == [0]
    left[0] = 2
    merger.wake()
    merger.wait()
    assert left == [0]


def test_a_wake_during_a_step_is_not_lost() -> None:
    entered, leave = threading.Event(), threading.Event()
    calls = []

    def step() -> bool:
        calls.append(len(calls))
        entered.set()
        leave.wait(60)
        return False

    merger = Merger(step)
    merger.wake()
    assert entered.wait(60)
    merger.wake()
    leave.set()
    merger.wait()
    assert calls == [0, 1]


def test_nothing_starts_after_close(caplog) -> None:
    calls = []
    merger = Merger(lambda: bool(calls.append(1)))
    merger.close()
    merger.wake()
    merger.wait()
    assert calls == []


def test_a_failure_is_logged_and_the_next_wake_tries_again(caplog) -> None:
    calls = []

    def step() -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise StorageError(28, "No space left on device")
        return False

    merger = Merger(step)
    with caplog.at_level(logging.WARNING):
        merger.wake()
        merger.wait()
    assert "stays in parts" in caplog.text
    merger.wake()
    merger.wait()
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_writers_and_readers_go_on_while_a_merge_is_built(kind, tiny, tmp_path, monkeypatch) -> None:
    settings = stub_settings(tiny)
    store = Store.in_memory(settings, tiny) if kind == "memory" else Store.create(tmp_path / "s", settings, tiny)
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    merge = writer_module.merge_segments

    def slow_merge(parts):
        entered.set()
        leave.wait(60)
        left.set()
        return merge(parts)

    monkeypatch.setattr(writer_module, "merge_segments", slow_merge)
    for i in range(8):
        store.add([Row(0, f"p{i}", None, "a b", "{}")])
    assert entered.wait(60)
    store.delete(["p3"])
    store.add([Row(0, "p5", None, "c", "{}"), Row(0, "new", None, "d", "{}")])
    assert not left.is_set(), "the writers waited for the merge"
    assert [r.id for r in store.scan()] == ["p0", "p1", "p2", "p4", "p6", "p7", "p5", "new"]
    leave.set()
    store.wait()
    index = store.current()
    assert index.n_live == 8
    assert index.df[:4].tolist() == [6, 6, 1, 1]
    assert [r.seq for r in store.scan()] == index.live_seqs().tolist()
    if kind == "folder":
        store.close()
        store = Store.open(tmp_path / "s", tiny)
        assert store.current().live_seqs().tolist() == index.live_seqs().tolist()
        assert store.current().df.tolist() == index.df.tolist()
    store.close()


def test_a_merge_whose_segments_are_gone_is_dropped(tiny, tmp_path, monkeypatch) -> None:
    store = Store.create(tmp_path / "s", stub_settings(tiny), tiny)
    entered, leave = threading.Event(), threading.Event()
    merge = writer_module.merge_segments

    def slow_merge(parts):
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            assert leave.wait(60)
        return merge(parts)

    monkeypatch.setattr(writer_module, "merge_segments", slow_merge)
    for i in range(8):
        store.add([Row(0, f"p{i}", None, "a", "{}")])
    assert entered.wait(60)
    store.compact()
    leave.set()
    store.wait()
    names = [view.name for view in store.current().views]
    assert len(names) == 1
    assert sorted(p.stem for p in (tmp_path / "s" / "segments").iterdir()) == names
    assert [r.id for r in store.scan()] == [f"p{i}" for i in range(8)]
    store.close()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a text of a passage"), StorageError(28, "full", "x")])
def test_an_error_of_any_kind_ends_a_round_and_not_the_merging(error, caplog) -> None:
    steps = [error, False, True, False]

    def step() -> bool:
        what = steps.pop(0)
        if isinstance(what, Exception):
            raise what
        return what

    merger = Merger(step)
    with caplog.at_level(logging.WARNING):
        merger.wake()
        merger.wait()
    assert steps == [False, True, False]
    assert "could not be merged" in caplog.text
    assert "a text" not in caplog.text
    merger.wake()
    merger.wait()
    merger.wake()
    merger.wait()
    assert not steps
