import errno
import os
import sqlite3
from pathlib import Path

import pytest

from sidr_rag.errors import StorageError
from sidr_rag.index.database import Database


def test_every_few_file_operations_refused(fast):
    from benchmarks.reliability.faults import run_faults

    figures = run_faults(fast, stride=9)
    assert figures["faults injected"] >= 45
    assert figures["add: refused"] > 0
    assert figures["save: refused"] > 0


def test_file_size_limits(fast):
    from benchmarks.reliability.full_disk import run_limits

    figures = run_limits(fast, steps=8)
    assert figures["refused"] >= 4


def test_a_full_file_system(fast):
    from benchmarks.reliability.full_disk import run_full

    figures = run_full(fast)
    if figures is None:
        pytest.skip("no file system can be mounted here")
    assert figures["refused while filling"] == 5
    assert figures["stored while filling"] > 5


def test_a_database_without_room(parts, tmp_path, monkeypatch):
    from benchmarks.reliability.faults import docs, prepare
    from benchmarks.reliability.model import add_docs, passages_differ

    model = prepare(parts, tmp_path / "store")
    connect = Database._connect
    connections = []

    def limited(self, *, write):
        connection = connect(self, write=write)
        if write:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")
            connections.append(connection)
        return connection

    monkeypatch.setattr(Database, "_connect", limited)
    with parts.open(tmp_path / "store") as sidr:
        with pytest.raises(StorageError, match=r"passages\.db") as caught:
            add_docs(sidr, docs("big", 2000))
        assert caught.value.errno == errno.ENOSPC
        assert passages_differ(sidr, model) is None
        for connection in connections:
            connection.execute("PRAGMA max_page_count = 1000000")
        add_docs(sidr, docs("big", 2000))
        model.add(docs("big", 2000))
        assert passages_differ(sidr, model) is None


def test_a_folder_that_cannot_be_written(parts, tmp_path):
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StorageError) as caught:
        parts.create(tmp_path / "locked" / "store")
    assert caught.value.errno == errno.EACCES


def test_a_segment_is_on_disk_before_the_commit_that_names_it(parts, tmp_path, monkeypatch):
    """What a power failure can take is decided by this order."""
    events = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(fd):
        events.append(("sync", Path(f"/proc/self/fd/{fd}").readlink().name))
        fsync(fd)

    def watched_replace(source, target, **options):
        events.append(("name", str(target).rsplit("/", 1)[-1]))
        replace(source, target, **options)

    connect = Database._connect

    def traced(self, *, write):
        connection = connect(self, write=write)
        if write:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            connection.set_trace_callback(lambda sql: events.append(("sql", sql.split()[0])))
        return connection

    with parts.create(tmp_path / "store"):
        pass
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(Database, "_connect", traced)
    with parts.open(tmp_path / "store") as sidr:
        sidr.add(["amber", "coral"])
        (name,) = sqlite3.connect(tmp_path / "store" / "passages.db").execute("SELECT name FROM segments").fetchone()
    # The rows are inserted beside it, until the commit.
    files = [event for event in events[: events.index(("sql", "COMMIT"))] if event[0] != "sql"]
    named = files.index(("name", f"{name}.seg"))
    assert files[named - 1][0] == "sync"
    assert files[named - 1][1].startswith(f"{name}.seg.")
    assert files[named + 1] == ("sync", "segments")
