"""A lock that a forked child never finds held by a thread that it does not have."""

from __future__ import annotations

import os
import threading
from types import TracebackType


class ForkLock:
    """`threading.Lock` as a context manager; in a forked child it is a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._held: threading.Lock | None = None

    def __enter__(self) -> None:
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._held = self._held, None
        if lock is not None:
            lock.release()
