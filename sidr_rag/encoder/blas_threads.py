"""How many threads NumPy's matrix products may use: one for a short text, whose products end before a second helps.

On a busy machine the second thread is often not running when the first one waits for it, and a question that one
thread encodes in 25 ms takes hundreds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

_FEW_TOKENS = 64
# The names that OpenBLAS has in NumPy's own wheels, by age.
_SET = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")
_GET = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")


class _Threads:
    """The number of threads of one BLAS, lowered while anyone asks for it: the setting is the whole process's."""

    def __init__(self, get: Callable[[], int], put: Callable[[int], object]) -> None:
        self._get, self._put = get, put
        self._lock = threading.Lock()
        self._users = 0
        self._usual = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._usual = self._get()
                if self._usual > 1:
                    self._put(1)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and self._usual > 1:
                    self._put(self._usual)


def few_threads(n_tokens: int) -> contextlib.AbstractContextManager[None]:
    """One thread for products of few columns; more columns, or another BLAS than NumPy's own: as it is."""
    threads = _openblas() if n_tokens <= _FEW_TOKENS else None
    return contextlib.nullcontext() if threads is None else threads.one()


@lru_cache(maxsize=1)
def _openblas() -> _Threads | None:
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))  # loaded already: this gives the same one
            except OSError:
                continue
            get = next((getattr(library, name) for name in _GET if hasattr(library, name)), None)
            put = next((getattr(library, name) for name in _SET if hasattr(library, name)), None)
            if get is not None and put is not None:
                get.argtypes, get.restype = [], ctypes.c_int
                put.argtypes, put.restype = [ctypes.c_int], None
                return _Threads(get, put)
    return None


# A forked child must not wait for a lock that a thread of its parent held.
os.register_at_fork(after_in_child=_openblas.cache_clear)
