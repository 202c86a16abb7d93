"""A call beside its caller: it has ended when the block has, and its outcome is the caller's."""

from __future__ import annotations

import threading

import pytest

from sidr_rag import SiDR, StorageError
from sidr_rag.index.beside import Beside
from sidr_rag.index.segment import Segment
from sidr_rag.index.transaction import SqliteTransaction


def test_the_call_runs_while_the_block_does():
    reached = threading.Event()

    def call():
        assert reached.wait(60)
        return threading.current_thread()

    with Beside(call) as beside:
        reached.set()
    assert beside.result() is not threading.current_thread()
    assert not beside.result().is_alive()


def test_what_it_raises_is_raised_by_the_result_alone():
    def call():
        raise KeyError("gone")

    with Beside(call) as beside:
        pass
    with pytest.raises(KeyError, match="gone"):
        beside.result()


def test_it_has_ended_where_the_block_fails():
    ended = []
    begun = threading.Event()

    def call():
        begun.set()
        ended.append(True)

    def block():
        with Beside(call):
            assert begun.wait(60)
            raise ValueError("block")

    with pytest.raises(ValueError, match="block"):
        block()
    assert ended == [True]


def test_without_threads_the_call_comes_first(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    order = []
    with Beside(lambda: order.append("call")) as beside:
        order.append("block")
    assert order == ["call", "block"]
    assert beside.result() is None


@pytest.fixture
def store(tmp_path):
    with SiDR.from_texts(["copper"], ids=["x"], path=tmp_path / "s") as sidr:
        yield sidr


def files_of(store):
    return sorted(path.name for path in (store.path / "segments").iterdir())


def test_a_failed_insert_leaves_no_segment_file(store, monkeypatch):
    before = files_of(store)

    def fail(transaction, rows):
        raise StorageError(28, "no space", "passages.db")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteTransaction, "insert", fail)
        with pytest.raises(StorageError):
            store.add(["river"], ids=["y"])
    assert files_of(store) == before
    assert store.ids() == ["x"]
    store.add(["river"], ids=["y"])
    assert store.ids() == ["x", "y"]


def test_a_segment_that_cannot_be_written_undoes_the_insert(store, monkeypatch):
    before = files_of(store)

    def fail(segment, path):
        raise StorageError(28, "no space", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "save", fail)
        with pytest.raises(StorageError):
            store.add(["river"], ids=["y"])
    assert files_of(store) == before
    assert store.ids() == ["x"]
    assert [r.passage.id for r in store.search("river")] == []


def test_the_commit_comes_after_the_segment_file_is_on_disk(store, monkeypatch):
    order = []
    save, commit = Segment.save, SqliteTransaction.commit

    def slow(segment, path):
        assert inserted.wait(60)
        save(segment, path)
        order.append("segment")

    def told(transaction, rows):
        insert(transaction, rows)
        order.append("rows")
        inserted.set()

    def last(transaction, change, next_seq):
        order.append("commit")
        return commit(transaction, change, next_seq)

    insert, inserted = SqliteTransaction.insert, threading.Event()
    monkeypatch.setattr(Segment, "save", slow)
    monkeypatch.setattr(SqliteTransaction, "insert", told)
    monkeypatch.setattr(SqliteTransaction, "commit", last)
    store.add(["river"], ids=["y"])
    assert order[:3] == ["rows", "segment", "commit"]
