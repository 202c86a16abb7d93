"""The compiled search kernel: the reference's bits, several times faster, without holding the GIL.

numba is imported only when a kernel is built. The compiled code is serial (numba's own threads are not safe under
concurrent calls or after a fork), and it does not check bounds: see `NumbaKernel`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.search.reference import check_postings, check_selection

_config_lock = threading.Lock()


def _accumulate(rows: Any, starts: Any, ends: Any, weights: Any, scores: Any) -> None:
    for i in range(len(starts)):
        weight = weights[i]
        for j in range(starts[i], ends[i]):
            scores[rows[j]] += weight


def _accumulate_weighted(rows: Any, values: Any, starts: Any, ends: Any, weights: Any, scores: Any) -> None:
    for i in range(len(starts)):
        weight = weights[i]
        for j in range(starts[i], ends[i]):
            scores[rows[j]] += weight * np.float64(values[j])


def _select(
    scores: Any, factors: Any, has_factors: bool, allowed: Any, has_allowed: bool, best: Any, best_rows: Any
) -> None:
    # `best` and `best_rows` are a heap whose root is the worst hit kept (lowest value, then highest row); it starts
    # full of -inf. Rows come in ascending order, so a value that only equals the root's never displaces it.
    size = len(best)
    worst = np.float64(best[0])
    for row in range(len(scores)):
        score = scores[row]
        if not score > 0.0:
            continue
        if has_factors:
            score = score * factors[row]
        if not score > worst:  # rounding to float32 keeps order, so this row could not win
            continue
        value = np.float32(score)
        if not value > best[0] or (has_allowed and not allowed[row]):
            continue
        hole = 0
        while True:
            child = 2 * hole + 1
            if child >= size:
                break
            other = child + 1
            if other < size and (
                best[other] < best[child] or (best[other] == best[child] and best_rows[other] > best_rows[child])
            ):
                child = other
            if value < best[child] or (value == best[child] and row > best_rows[child]):
                break
            best[hole] = best[child]
            best_rows[hole] = best_rows[child]
            hole = child
        best[hole] = value
        best_rows[hole] = row
        worst = np.float64(best[0])


class NumbaKernel:
    """Exact scoring of one segment in compiled code; the arguments and results are `NumpyKernel`'s.

    Posting lists are trusted, and a bad one would corrupt memory: the caller has validated that every slice lies
    inside `rows` and every row inside `scores`. Read-only and memory-mapped arrays are fine.
    """

    name = "numba"

    def __init__(self, *, cache: bool = True, pause: Callable[[], None] | None = None) -> None:
        """Import numba and compile, or load what an earlier process compiled.

        Args:
            cache: keep the compiled code in the user's cache folder (`NUMBA_CACHE_DIR` if that is set).
            pause: called between the steps; whatever it raises ends the construction.

        Raises:
            ImportError: if numba is not there.
            RuntimeError: if numba is there but its compiler is switched off (`NUMBA_DISABLE_JIT`).
        """
        import numba
        from numba import types

        if getattr(numba.config, "DISABLE_JIT", False):
            raise RuntimeError("numba's compiler is switched off by NUMBA_DISABLE_JIT")
        pause = pause or _no_pause

        def vector(dtype: Any, *, readonly: bool = True) -> Any:
            return types.Array(dtype, 1, "C", readonly=readonly)

        lists = (vector(types.int64), vector(types.int64), vector(types.float64), vector(types.float64, readonly=False))
        row_types = [vector(types.uint32), vector(types.uint16)]
        selection = (
            *(vector(types.float64), vector(types.float64), types.boolean, vector(types.boolean), types.boolean),
            *(vector(types.float32, readonly=False), vector(types.int64, readonly=False)),
        )
        self._accumulate = _compiled(_accumulate, [(rows, *lists) for rows in row_types], cache, pause)
        self._select = _compiled(_select, [selection], cache, pause)
        weighted = [(rows, vector(types.float32), *lists) for rows in row_types]
        self._accumulate_weighted = _compiled(_accumulate_weighted, weighted, cache, pause)

    def accumulate(
        self,
        rows: NDArray[Any],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> None:
        """Add `weights[i]` to `scores[r]` for every r in `rows[starts[i]:ends[i]]`, i ascending, in float64.

        Shapes, dtypes and errors are those of `NumpyKernel.accumulate`; `scores` must be contiguous.
        """
        check_postings(rows, None, starts, ends, weights, scores)
        self._accumulate(_plain(rows), _plain(starts), _plain(ends), _plain(weights), scores)

    def accumulate_weighted(
        self,
        rows: NDArray[Any],
        values: NDArray[np.float32],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> None:
        """Add `weights[i] * float64(values[j])` to `scores[rows[j]]` for every j of list i, i ascending, in float64.

        Shapes, dtypes and errors are those of `NumpyKernel.accumulate_weighted`; `scores` must be contiguous.
        """
        check_postings(rows, values, starts, ends, weights, scores)
        self._accumulate_weighted(_plain(rows), _plain(values), _plain(starts), _plain(ends), _plain(weights), scores)

    def select(
        self,
        scores: NDArray[np.float64],
        factors: NDArray[np.float64] | None,
        allowed: NDArray[np.bool_] | None,
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best k rows among those with a positive score, by float32(score * factor) descending, then row.

        One pass over `scores`, and memory for the k best alone. Shapes, dtypes and errors are those of
        `NumpyKernel.select`.
        """
        check_selection(scores, factors, allowed, k)
        size = min(k, len(scores))
        values = np.full(size, -np.inf, np.float32)
        rows = np.zeros(size, np.int64)
        if size:
            self._select(
                _plain(scores),
                np.empty(0) if factors is None else _plain(factors),
                factors is not None,
                np.empty(0, np.bool_) if allowed is None else _plain(allowed),
                allowed is not None,
                values,
                rows,
            )
        order = np.lexsort((rows, -values))[: np.count_nonzero(values >= 0)]
        return rows[order], values[order]


def compile_cache_dir() -> Path | None:
    """The private folder of this user for compiled code, made if need be; None if there can be none.

    A folder that others can write to is refused: what lies in it is loaded as code.
    """
    try:
        path = _user_cache() / "sidr_rag" / "numba"
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
        if os.name == "posix":
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return None
        return path if os.access(path, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    wanted = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return wanted if wanted.is_absolute() else Path.home() / ".cache"


def _compiled(function: Callable[..., None], signatures: list[Any], cache: bool, pause: Callable[[], None]) -> Any:
    """`function`, compiled for each signature."""
    if cache:
        with contextlib.suppress(Exception):  # full disk, damaged cache: compile without one
            return _compile(function, signatures, True, pause)
    return _compile(function, signatures, False, pause)


def _compile(function: Callable[..., None], signatures: list[Any], cache: bool, pause: Callable[[], None]) -> Any:
    import numba

    with _cache_folder(numba.config, cache) as usable:
        dispatcher = numba.njit(nogil=True, cache=usable)(function)
    for signature in signatures:
        pause()
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher


@contextlib.contextmanager
def _cache_folder(config: Any, wanted: bool) -> Iterator[bool]:
    """Point numba at our cache folder while a function is decorated, for numba fixes the place just then."""
    if not wanted or config.CACHE_DIR:
        yield wanted
        return
    folder = compile_cache_dir()
    if folder is None:
        yield False
        return
    with _config_lock:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            yield True
        finally:
            config.CACHE_DIR = before


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array as the compiled signatures want it: NumPy's own class, contiguous and aligned; seldom a copy."""
    plain = np.ascontiguousarray(array)
    return plain if plain.flags.aligned else plain.copy()


def _no_pause() -> None:
    """Nothing to wait for."""
