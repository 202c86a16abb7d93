"""One writer for a folder: an advisory lock that the system drops when its holder dies."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from pathlib import Path

from sidr_rag.errors import StorageError, StoreLockedError

try:
    import fcntl
except ImportError:  # pragma: no cover - only on systems without POSIX locks
    fcntl = None  # type: ignore[assignment]


class WriterLock:
    """Held from the first write of a store object until it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._pid = 0
        _locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this object, in this process, holds the lock."""
        return self._fd is not None and self._pid == os.getpid()

    def acquire(self) -> None:
        """Take the lock, or fail at once.

        Raises:
            StoreLockedError: naming the process that holds it.
            StorageError: if the lock file cannot be made.
        """
        if self.held:
            return
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as e:
            raise StorageError(e.errno, f"cannot lock the store for writing: {e.strerror}", str(self._path)) from e
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            holder = _holder(fd)
            os.close(fd)
            raise StoreLockedError(
                f"{self._path.parent}: another writer holds this store ({holder}); "
                "close it there, or open read-only here"
            ) from e
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())}
        with contextlib.suppress(OSError):  # only for people: a full disk may still have room for a deletion
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(note).encode(), 0)
        self._fd, self._pid = fd, os.getpid()

    def release(self) -> None:
        """Give the lock back."""
        if self._fd is not None:
            if self.held and fcntl is not None:
                # Closing is not enough where a forked child still has the descriptor.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = None

    def forget(self) -> None:
        """In a forked child: leave the lock to the parent alone, so that it ends with the parent."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_locks):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _holder(fd: int) -> str:
    try:
        note = json.loads(os.pread(fd, 4096, 0))
        who = "this process" if note["pid"] == os.getpid() else f"process {int(note['pid'])}"
        return f"{who} on {note['host']}, since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(note['since']))} UTC"
    except (OSError, ValueError, KeyError, TypeError):
        return "its name is not readable"
