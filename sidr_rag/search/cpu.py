"""The compiled search kernel: the reference's bits, several times faster, without holding the GIL.

numba is imported only when a kernel is built. The compiled code is serial (numba's own threads are not safe under
concurrent calls or after a fork), and it does not check bounds: see `NumbaKernel`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.index.postings import BLOCK_ROWS
from sidr_rag.search.bounds import BATCH, Query
from sidr_rag.search.compiling import compile_for
from sidr_rag.search.reference import NumpyKernel, check_postings, check_selection

if TYPE_CHECKING:
    from sidr_rag.index.segment import Segment

_NO_FACTORS = np.empty(0, np.float64)
_NO_MASK = np.empty(0, np.bool_)
_FIRST = ("score_rows", "select")
_FUNCTIONS_OF = {"score": "score_rows", "scan": "scan_rows"}


class NumbaKernel:
    """Exact scoring of one segment in compiled code; the arguments and results are `NumpyKernel`'s, and more.

    Posting lists are trusted, and a bad one would corrupt memory: `Segment.open` has validated them. Read-only and
    memory-mapped arrays are fine.
    """

    name = "numba"

    def __init__(self, *, cache: bool = True, pause: Callable[[], None] | None = None, complete: bool = True) -> None:
        """Import numba and compile, or load what an earlier process compiled.

        Args:
            cache: keep the compiled code in the user's cache folder (`NUMBA_CACHE_DIR` if that is set).
            pause: called between the steps; whatever it raises ends the construction.
            complete: whether to compile everything now. Otherwise only plain accumulation is, which takes a third of
                the time; `complete` does the rest, and until a function is there, callers ask `has` and do without.

        Raises:
            ImportError: if numba is not there.
            RuntimeError: if numba is there but its compiler is switched off (`NUMBA_DISABLE_JIT`).
        """
        import numba

        if getattr(numba.config, "DISABLE_JIT", False):
            raise RuntimeError("numba's compiler is switched off by NUMBA_DISABLE_JIT")
        pause = pause or _no_pause
        pause()
        self._cache = cache
        self._code: Any = SimpleNamespace()
        self._scratch = threading.local()
        self._compile(_FIRST, pause)
        if complete:
            self.complete(pause)

    def has(self, *names: str) -> bool:
        """Whether methods of these names can be called; `score` and `select` always can."""
        return all(_FUNCTIONS_OF.get(name, name) in self._code.__dict__ for name in names)

    def complete(self, pause: Callable[[], None]) -> None:
        """Compile what is missing; one function after the other comes into use.

        Args:
            pause: called between the steps; whatever it raises is let through.
        """
        import numba

        self._compile([name for name in _signatures(numba.types) if name not in _FIRST], pause)

    def _compile(self, names: Sequence[str], pause: Callable[[], None]) -> None:
        import numba

        from sidr_rag.search import compiled_lists, compiled_scans, compiled_scores

        signatures = _signatures(numba.types)
        for name in names:
            if name not in self._code.__dict__:
                module = next(m for m in (compiled_scans, compiled_scores, compiled_lists) if hasattr(m, name))
                setattr(self._code, name, compile_for(getattr(module, name), signatures[name], self._cache, pause))

    def score(self, segment: Segment, query: Query, scores: NDArray[np.float64], first_block: int = 0) -> None:
        """Add the query's weights to the scores of rows, in the canonical order; see `NumpyKernel.score`."""
        postings = segment.postings
        self._code.score_rows(query.dims, query.weights, query.gains, *postings.arrays, first_block, scores)

    def scan(
        self,
        segment: Segment,
        query: Query,
        scale: float,
        k: int,
        allowed: NDArray[np.uint32],
        steps: NDArray[np.uint16],
        blocks: tuple[int, int],
        limit: int,
    ) -> NDArray[np.int64] | None:
        """The rows of some blocks that can be among the k best, ascending; None if they are more than `limit`.

        Args:
            segment: what to search.
            query: its weights.
            scale: from `bounds.scale_of`, not 0.
            k: at least 1.
            allowed: u32 bits of the rows that may be found, as in `Postings.bitmaps`; empty for all.
            steps: u16[n_chunks * 512] from `bounds.steps_of`; empty for none.
            blocks: the first one and the one after the last.
            limit: how many rows at most.
        """
        found = np.empty(limit, np.int64)
        count = self._code.scan_rows(
            *(query.dims, query.weights, query.gains, scale, *segment.postings.arrays, *blocks, steps, allowed),
            *(segment.doc_indptr, self._sums(BLOCK_ROWS * (blocks[1] - blocks[0])), np.zeros(k, np.int64), found),
        )
        return None if count < 0 else found[:count]

    def rescore(
        self, segment: Segment, query: Query, rows: NDArray[np.int64], factors: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Canonical scores of rows from their forward lists; rows without a match are left out.

        Args:
            segment: what holds the rows.
            query: its weights.
            rows: i64[m], ascending; may be overwritten.
            factors: f64[m], of these rows, or None for ones.
        """
        values = np.empty(len(rows), np.float32)
        table = self._table(segment.dim)
        table[query.dims] = query.weights
        try:
            count = self._code.rescore(
                *(segment.doc_indptr, segment.doc_dims, query.gains, table),
                *(_NO_FACTORS if factors is None else factors, rows, values),
            )
        finally:
            table[query.dims] = 0.0
        return rows[:count], values[:count]

    def scan_batch(
        self,
        segment: Segment,
        table: NDArray[np.uint16],
        gains: NDArray[np.float64],
        sizes: NDArray[np.int64],
        k: int,
        allowed: NDArray[np.uint32],
        steps: NDArray[np.uint16],
        rows: tuple[int, int],
        limit: int,
    ) -> list[NDArray[np.int64] | None]:
        """`scan` for 32 queries at once, over the forward lists of a range of rows.

        Args:
            segment: what to search; its dimensions are u16.
            table: u16[n_levels * dim, 32]: the queries' integer weights, by `bounds.integer_weights`.
            gains: f64[n_levels].
            sizes: i64[32]: how many dimensions each query has; 0 for none.
            k: at least 1.
            allowed: as for `scan`.
            steps: as for `scan`.
            rows: the first one and the one after the last.
            limit: how many rows at most for each query.
        """
        found, keys = np.empty((BATCH, limit), np.int64), np.empty((BATCH, limit), np.uint16)
        counts = np.empty(BATCH, np.int64)
        self._code.scan_batch(
            *(segment.doc_indptr, segment.doc_dims, gains, table, sizes, *rows, steps, allowed),
            *(np.zeros((BATCH, k), np.int64), found, keys, counts),
        )
        return [None if count < 0 else found[q, :count] for q, count in enumerate(counts.tolist())]

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
        if not self.has("accumulate_weighted"):
            NumpyKernel().accumulate_weighted(rows, values, starts, ends, weights, scores)
            return
        check_postings(rows, values, starts, ends, weights, scores)
        self._code.accumulate_weighted(
            _plain(rows), _plain(values), _plain(starts), _plain(ends), _plain(weights), scores
        )

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
            self._code.select(
                _plain(scores),
                _NO_FACTORS if factors is None else _plain(factors),
                factors is not None,
                _NO_MASK if allowed is None else _plain(allowed),
                allowed is not None,
                values,
                rows,
            )
        order = np.lexsort((rows, -values))[: np.count_nonzero(values >= 0)]
        return rows[order], values[order]

    def count_lists(self, *arguments: Any) -> None:
        """See `compiled_lists.count_lists`."""
        self._code.count_lists(*arguments)

    def fill_lists(self, *arguments: Any) -> None:
        """See `compiled_lists.fill_lists`."""
        self._code.fill_lists(*arguments)

    def fill_bitmaps(self, *arguments: Any) -> None:
        """See `compiled_lists.fill_bitmaps`."""
        self._code.fill_bitmaps(*arguments)

    def _sums(self, size: int) -> NDArray[np.uint16]:
        """A thread's own accumulator, kept: fresh memory costs as much as a short query."""
        sums: NDArray[np.uint16] | None = getattr(self._scratch, "sums", None)
        if sums is None or len(sums) < size:
            sums = self._scratch.sums = np.empty(size, np.uint16)
        return sums

    def _table(self, dim: int) -> NDArray[np.float64]:
        """A thread's own zeros, given back as zeros."""
        tables: dict[int, NDArray[np.float64]] = self._scratch.__dict__.setdefault("tables", {})
        if dim not in tables:
            tables[dim] = np.zeros(dim, np.float64)
        return tables[dim]


def _signatures(types: Any) -> dict[str, list[Any]]:
    """What each function of the compiled modules is compiled for; few, since each costs up to a second once."""

    def array(dtype: Any, n: int = 1, *, writable: bool = False) -> Any:
        return types.Array(dtype, n, "C", readonly=not writable)

    i64, i32, u16, u32 = types.int64, types.int32, types.uint16, types.uint32
    floats, longs, flags = array(types.float64), array(i64), array(types.boolean)
    own_floats, own_longs = array(types.float64, writable=True), array(i64, writable=True)
    query = (array(i32), floats, floats)
    lists = (array(i32), array(u32, 2), longs, array(u16), array(u32, 3))
    cut = (array(u16), array(u32))
    values = array(types.float32, writable=True)
    forward = (longs, array(u16), array(i32), i64, i64, i64)
    return {
        "select": [(floats, floats, types.boolean, flags, types.boolean, values, own_longs)],
        "scan_rows": [
            (*query, types.float64, *lists, i64, i64, *cut, longs, array(u16, writable=True), own_longs, own_longs)
        ],
        "rescore": [(longs, array(dims), floats, floats, floats, own_longs, values) for dims in (u16, i32)],
        "score_rows": [(*query, *lists, i64, own_floats)],
        "scan_batch": [
            (
                *(longs, array(u16), floats, array(u16, 2), longs, i64, i64, *cut),
                *(array(i64, 2, writable=True), array(i64, 2, writable=True), array(u16, 2, writable=True), own_longs),
            )
        ],
        "count_lists": [(*forward, own_longs)],
        "fill_lists": [(*forward, own_longs, array(u16, writable=True))],
        "fill_bitmaps": [(*forward, array(u32, 3, writable=True))],
        "accumulate_weighted": [
            (array(rows), array(types.float32), longs, longs, floats, own_floats) for rows in (u32, u16)
        ],
    }


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array as the compiled signatures want it: NumPy's own class, contiguous and aligned; seldom a copy."""
    plain = np.ascontiguousarray(array)
    return plain if plain.flags.aligned else plain.copy()


def _no_pause() -> None:
    """Nothing to wait for."""
