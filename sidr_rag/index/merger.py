"""Merging in the background: a thread that lives while there is something to merge."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from sidr_rag.errors import SidrError

_log = logging.getLogger(__name__)


class Merger:
    """Runs merge steps one after the other, away from searches and writers."""

    def __init__(self, step: Callable[[], bool]) -> None:
        """Nothing runs yet.

        Args:
            step: makes one merge; False if none was due. What it raises ends the round; the next `wake` tries again.
        """
        self._step = step
        self._renew()

    def _renew(self) -> None:
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False
        self._closed = False
        self._pid = os.getpid()

    def wake(self) -> None:
        """See that everything due is merged soon."""
        self._renew_after_fork()
        with self._guard:
            self._again = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="sidr-merge", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being merged and nothing was due."""
        self._renew_after_fork()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Let the merge at work come to its end, and start no other."""
        self._renew_after_fork()
        with self._guard:
            self._closed = True
        self.wait()

    def _renew_after_fork(self) -> None:
        """A forked child has the objects, but not the thread, and perhaps a lock that no one will release."""
        if self._pid != os.getpid():
            self._renew()

    def _run(self) -> None:
        while True:
            with self._guard:
                if self._closed or not self._again:
                    self._thread = None
                    return
                self._again = False
            try:
                while not self._closed and self._step():
                    pass
            except Exception as e:  # of any kind: a thread that dies unseen would be the last to merge
                # The store itself is whole; only its parts stay apart until the next change.
                if not self._closed:
                    reason = str(e) if isinstance(e, SidrError) else type(e).__name__
                    _log.warning("the index could not be merged and stays in parts: %s", reason)
