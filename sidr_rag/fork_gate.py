"""What a fork waits for: searches and commits of other threads, whose locks a child would find held for ever.

The locks are SQLite's own, those of the tokenizer, of the encoder and of its linear algebra, and ours.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

_LONGEST_WAIT_S = 20.0  # twice as long as SQLite waits for another process


class ForkGate:
    """A context manager that many threads may be inside at once, and one thread several times; forks wait for them.

    A thread that forks while it is inside itself waits for the others only. After 20 s a fork goes on regardless.
    """

    def __init__(self) -> None:
        self._own = threading.local()
        self._renew(0)

    def _renew(self, n_inside: int) -> None:
        self._changed = threading.Condition()
        self._n_inside = n_inside
        self._n_forks = 0

    @property
    def _depth(self) -> int:
        depth: int = getattr(self._own, "depth", 0)
        return depth

    def __enter__(self) -> None:
        depth = self._depth
        if not depth:
            with self._changed:
                while self._n_forks:
                    self._changed.wait()
                self._n_inside += 1
        self._own.depth = depth + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.depth = depth = self._depth - 1
        if not depth:
            with self._changed:
                self._n_inside -= 1
                if self._n_forks:
                    self._changed.notify_all()

    def before_fork(self) -> None:
        """Let no thread in, and wait until those inside are out."""
        own = min(self._depth, 1)
        with self._changed:
            self._n_forks += 1
            self._changed.wait_for(lambda: self._n_inside <= own, _LONGEST_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Let the threads in again."""
        with self._changed:
            self._n_forks -= 1
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        """Begin anew: of the threads only this one is here."""
        self._renew(min(self._depth, 1))


FORK_GATE = ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORK_GATE.before_fork,
        after_in_parent=FORK_GATE.after_fork_in_parent,
        after_in_child=FORK_GATE.after_fork_in_child,
    )
