"""A call in a thread of its own, while its caller does something else: most of it waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A context manager that makes a call; at the end of the block the call has ended, however the block ends."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Nothing is called yet."""
        self._call = call
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Beside[T]:
        thread = threading.Thread(target=self._run, name="sidr-beside")
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._run()
        else:
            self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.join()

    def result(self) -> T:
        """What the call returned, after the block; what it raised is raised here."""
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except BaseException as error:  # of any kind: it belongs to the caller
            self._error = error
