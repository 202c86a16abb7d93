import os
import signal
import subprocess
import sys
import time

import pytest

from sidr_rag.errors import StorageError, StoreLockedError
from sidr_rag.index.lock import WriterLock

HOLD = """
import sys, time
from pathlib import Path
from sidr_rag.index.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(500)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_learns_who_the_first_is(tmp_path, holder):
    with pytest.raises(StoreLockedError) as caught:
        WriterLock(tmp_path / "lock").acquire()
    assert f"process {holder.pid}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_dead_holder_holds_nothing(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    assert lock.held
    lock.release()


def test_two_objects_of_one_process_exclude_each_other(tmp_path):
    first, second = WriterLock(tmp_path / "lock"), WriterLock(tmp_path / "lock")
    first.acquire()
    first.acquire()
    with pytest.raises(StoreLockedError, match="this process"):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff"])
def test_an_unreadable_note_does_not_hide_the_fault(tmp_path, note):
    first = WriterLock(tmp_path / "lock")
    first.acquire()
    (tmp_path / "lock").write_bytes(note)
    with pytest.raises(StoreLockedError, match="not readable"):
        WriterLock(tmp_path / "lock").acquire()
    first.release()


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "elsewhere"
    target.write_text("precious", encoding="utf-8")
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(StorageError):
        WriterLock(tmp_path / "lock").acquire()
    assert target.read_text(encoding="utf-8") == "precious"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_holds_nor_keeps_the_lock(tmp_path):
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"held" if lock.held else b"free"
        try:
            lock.acquire()
        except StoreLockedError:
            answer += b" refused"
        os.write(write, answer)
        time.sleep(500)
        os._exit(0)
    try:
        assert os.read(read, 100) == b"free refused"
        lock.release()
        other = WriterLock(tmp_path / "lock")
        other.acquire()
        other.release()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


FORK = """
import os, sys, time
from pathlib import Path
from sidr_rag.index.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
lock.acquire()
child = os.fork()
if not child:
    assert not lock.held
    time.sleep(500)
print(child, flush=True)
time.sleep(500)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_died(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", FORK, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(StoreLockedError):
            WriterLock(tmp_path / "lock").acquire()
        parent.kill()
        parent.wait()
        lock = WriterLock(tmp_path / "lock")
        deadline = time.monotonic() + 60
        while not lock.held and time.monotonic() < deadline:  # the child may not have come to closing it yet
            try:
                lock.acquire()
            except StoreLockedError:
                time.sleep(0.01)
        assert lock.held
        os.kill(child, 0)  # it still runs
        lock.release()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()
