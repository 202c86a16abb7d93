"""Which search kernel to use: NumPy at once, compiled code for large stores as soon as it is ready."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.search.bounds import Query
from sidr_rag.search.reference import NumpyKernel

if TYPE_CHECKING:
    from sidr_rag.index.segment import Segment

# Loading costs about a second of one core; up to here NumPy answers a query in well under a millisecond anyway.
COMPILED_FROM_ROWS = 10_000
# NumPy inverts so many in the time that loading takes.
_BUILT_FROM_ROWS = 150_000
_FORK_WAIT_S = 10.0
_EXIT_WAIT_S = 30.0

_log = logging.getLogger(__name__)
_numpy = NumpyKernel()


class SearchKernel(Protocol):
    """Scores segments; every kernel gives the bits of the NumPy reference, `NumpyKernel`."""

    name: str

    def score(self, segment: Segment, query: Query, scores: NDArray[np.float64], first_block: int = 0) -> None:
        """Add `gain * w(t)` to the scores of the rows that hold t, in float64, by ascending (level, dimension)."""
        ...

    def accumulate_weighted(
        self,
        rows: NDArray[Any],
        values: NDArray[np.float32],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> None:
        """Add `weights[i] * values[j]` to `scores[rows[j]]` for j in `starts[i]:ends[i]`, i ascending, in float64."""
        ...

    def select(
        self,
        scores: NDArray[np.float64],
        factors: NDArray[np.float64] | None,
        allowed: NDArray[np.bool_] | None,
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best k rows with a positive score: float32(factor * score) descending, then row ascending."""
        ...


class _StoppedError(Exception):
    """The process ends: no more compiling."""


class KernelLoader:
    """Builds a kernel once, in a background thread, and hands it out from then on.

    Safe for use by several threads. Before a fork the thread is brought to rest between two steps, so that a child
    never inherits a lock of the compiler; at exit it is stopped there, so that it never runs into the interpreter's
    end.
    """

    def __init__(self, build: Callable[[Callable[[], None]], SearchKernel]) -> None:
        """Nothing is built yet.

        Args:
            build: makes the kernel; calls its argument between steps and lets through what that raises. A kernel with a
                method `complete`, of the same argument, is handed out before that is called.
        """
        self._build = build
        self._kernel: SearchKernel | None = None
        self._complete = False
        self._failure: str | None = None
        self._exit_hook = False
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._step = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fork = threading.local()

    @property
    def failure(self) -> str | None:
        """Why there will be no kernel, or None."""
        return self._failure

    def get(self) -> SearchKernel | None:
        """The kernel if it is ready; see that it is being built, and completed."""
        if not self._complete:
            self._start()
        return self._kernel

    def ready(self) -> SearchKernel | None:
        """The kernel if it is ready; starts nothing."""
        return self._kernel

    def wait(self) -> SearchKernel | None:
        """The complete kernel, however long it takes; None if it cannot be built."""
        if self._complete:
            return self._kernel
        self._start()
        thread = self._thread
        if thread is not None:
            thread.join()
        return self._kernel

    def _start(self) -> None:
        with self._lock:
            if self._complete or self._failure is not None or self._thread is not None:
                return  # ready, hopeless, or on its way
            if not self._exit_hook:
                self._exit_hook = True
                atexit.register(self.stop)
            thread = threading.Thread(target=self._run, args=(self._stop,), name="sidr-rag-kernel", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is ending
                self._fail(error)
            else:
                self._thread = thread

    def _run(self, stop: threading.Event) -> None:
        hooked = False

        def pause() -> None:
            nonlocal hooked
            if not hooked:
                # Exit hooks run last in, first out: this one precedes those that importing the compiler registered.
                hooked = True
                with contextlib.suppress(Exception):
                    atexit.register(self.stop)
            step.release()
            time.sleep(0.001)  # long enough for a waiting fork to take the lock
            step.acquire()
            if stop.is_set():
                raise _StoppedError

        step = self._step
        with step:
            try:
                if self._kernel is None:
                    self._kernel = self._build(pause)
                getattr(self._kernel, "complete", _nothing_left)(pause)
                self._complete = True
            except _StoppedError:
                return
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = f"{type(error).__name__}: {error}"
        lacking = "no compiled search kernel" if self._kernel is None else "the compiled search kernel lacks parts"
        _log.debug("%s, NumPy serves instead (%s)", lacking, self._failure)

    def stop(self) -> None:
        """End a build at its next step, and wait for that."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_WAIT_S)

    def before_fork(self) -> None:
        """Bring the build to rest between two steps."""
        self._fork.held = self._step.acquire(timeout=_FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Let the build go on."""
        if getattr(self._fork, "held", False):
            self._fork.held = False
            self._step.release()

    def after_fork_in_child(self) -> None:
        """Forget the parent's thread: the child builds its own when asked, unless the compiler was caught at work."""
        at_rest = getattr(self._fork, "held", False)
        if not at_rest and not self._complete and self._failure is None:
            self._failure = "the process was forked while the compiler was at work"
        self._renew()


def _build_compiled(pause: Callable[[], None]) -> SearchKernel:
    from sidr_rag.search.cpu import NumbaKernel

    return NumbaKernel(pause=pause, complete=False)


def _nothing_left(pause: Callable[[], None]) -> None:
    """Most kernels are complete when they are made."""


_compiled = KernelLoader(_build_compiled)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compiled.before_fork,
        after_in_parent=_compiled.after_fork_in_parent,
        after_in_child=_compiled.after_fork_in_child,
    )


def kernel_for(n_rows: int, *, prefer: Literal["auto", "numpy", "numba"] = "auto") -> SearchKernel:
    """The kernel to search `n_rows` rows with; every kernel gives the same bits.

    "auto" never waits: it gives the compiled kernel if that is ready, and NumPy otherwise. The first request for
    at least `COMPILED_FROM_ROWS` rows starts loading the compiled kernel in the background; smaller stores do not
    repay that. If numba is missing or fails, NumPy serves for good.

    Args:
        n_rows: how many rows one search goes over.
        prefer: "numpy" or "numba" to have exactly that; "numba" waits until it is ready.

    Raises:
        InvalidInputError: if `prefer` is none of the three, or "numba" cannot be loaded.
    """
    if prefer == "numpy":
        return _numpy
    if prefer == "numba":
        kernel = _compiled.wait()
        if kernel is None:
            reason = _compiled.failure or "the process is ending"
            raise InvalidInputError(
                f"prefer='numba' needs numba, which could not be loaded ({reason}): use prefer='auto' or 'numpy'"
            )
        return kernel
    if prefer != "auto":
        raise InvalidInputError(f"prefer must be 'auto', 'numpy' or 'numba', got {prefer!r}")
    kernel = _compiled.get() if n_rows >= COMPILED_FROM_ROWS else _compiled.ready()
    return kernel or _numpy


def kernel_for_building(n_rows: int) -> SearchKernel | None:
    """The compiled kernel if it is ready; from `_BUILT_FROM_ROWS` rows on, see that it soon is.

    Args:
        n_rows: how many rows are to be inverted.
    """
    return _compiled.get() if n_rows >= _BUILT_FROM_ROWS else _compiled.ready()


def warm_up(*, wait: bool = True) -> bool:
    """Load the compiled kernel ahead of the first search that wants it.

    Args:
        wait: return only when loading has ended; otherwise it goes on in the background.

    Returns:
        Whether the compiled kernel is ready.
    """
    return (_compiled.wait() if wait else _compiled.get()) is not None
