"""Embedding all passages of a store in a thread of its own, while searches go on."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Literal

State = Literal["running", "paused", "finished", "closed", "failed"]
_NICENESS = 5


class Embedding:
    """The work that `SiDR.embed(background=True)` has begun; a context manager that ends it.

    What has been embedded is on disk, so work that was ended, or died with its process, is taken up where it stopped.
    A program that comes to its end ends the work first, which takes as long as the few passages at hand.

    Attributes:
        done: passages that have been seen to.
        total: passages that there are.
        error: what ended the work, where the state is "failed".
    """

    def __init__(
        self,
        embed: Callable[[Callable[[int, int], None], Callable[[], bool]], int],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.done = 0
        self.total = 0
        self.error: BaseException | None = None
        self._embed = embed
        self._progress = progress
        self._go = threading.Event()
        self._go.set()
        self._closed = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="sidr-embed", daemon=True)
        # Torch aborts the process if its thread is cut off in the middle of a product.
        weakref.finalize(self, _end, self._closed, self._go, self._thread)
        self._thread.start()

    @property
    def state(self) -> State:
        """What the work is at."""
        if self.error is not None:
            return "failed"
        if self._finished:
            return "finished"
        if self._closed.is_set():
            return "closed"
        return "running" if self._go.is_set() else "paused"

    def pause(self) -> None:
        """Stop after the few passages that are being embedded, until `resume`."""
        self._go.clear()

    def resume(self) -> None:
        """Go on."""
        self._go.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the work has ended; whether it has.

        Args:
            timeout: seconds; None for as long as it takes.

        Raises:
            BaseException: what ended the work, if it failed.
        """
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the work after the few passages that are being embedded; what is done is kept."""
        _end(self._closed, self._go, self._thread)

    def __enter__(self) -> Embedding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Embedding({self.done:,} of {self.total:,} passages, {self.state})"

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            # On Linux a thread has a niceness of its own: searches go first.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            n_done = self._embed(self._note, self._step)
            self._finished = not self._closed.is_set() or n_done == self.total
        except BaseException as error:
            self.error = error

    def _step(self) -> bool:
        self._go.wait()
        return not self._closed.is_set()

    def _note(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self._progress is not None:
            self._progress(done, total)


def _end(closed: threading.Event, go: threading.Event, thread: threading.Thread) -> None:
    closed.set()
    go.set()
    if thread is not threading.current_thread():
        thread.join()
