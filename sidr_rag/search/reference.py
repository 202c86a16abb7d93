"""The NumPy search kernel: the oracle whose bits every other kernel gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.index.postings import ABSENT, BLOCK_ROWS
from sidr_rag.search.bounds import Query

if TYPE_CHECKING:
    from sidr_rag.index.segment import Segment

_AT_ONCE = 1 << 18  # entries that are added by one call: a few megabytes
_ROW_TYPES = (np.dtype(np.uint16), np.dtype(np.uint32))


class NumpyKernel:
    """Exact scoring of one segment in NumPy.

    Posting lists are trusted: `Segment.open` has validated that they lie inside the segment.
    """

    name = "numpy"

    def score(self, segment: Segment, query: Query, scores: NDArray[np.float64], first_block: int = 0) -> None:
        """Add `gain * w(t)` to the scores of the rows that hold t, in ascending (level, dimension) order, in float64.

        Args:
            segment: what to search.
            query: its weights.
            scores: f64[n], contiguous: of the rows from `first_block * BLOCK_ROWS` on; added to in place.
            first_block: where to begin.
        """
        postings = segment.postings
        levels = np.flatnonzero(query.gains)
        keys = (levels[:, None] * segment.dim + query.dims).reshape(-1)
        weights = (query.gains[levels, None] * query.weights).reshape(-1)
        codes = postings.codes_of(keys.astype(np.int32))
        codes, weights = codes[codes != ABSENT], weights[codes != ABSENT]
        for base in range(0, len(scores), BLOCK_ROWS):
            here = scores[base : base + BLOCK_ROWS]
            held: list[NDArray[Any]] = []
            first = size = 0
            for i, rows in enumerate(postings.rows_in(first_block + base // BLOCK_ROWS, codes), start=1):
                held.append(rows)
                size += len(rows)
                if size > _AT_ONCE or i == len(codes):
                    # One entry after the other, as the order of a sum wants it.
                    places = np.concatenate(held, dtype=np.intp)
                    np.add.at(here, places, np.repeat(weights[first:i], [len(rows) for rows in held]))
                    held, first, size = [], i, 0

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

        Args:
            rows: u16[nnz] or u32[nnz]; the posting lists of embedded passages.
            values: f32[nnz]; the passages' own weights, beside `rows`.
            starts: i64[m]; where each list begins.
            ends: i64[m]; where each list ends.
            weights: f64[m]; the query's weight of each list.
            scores: f64[n]; added to in place.

        Raises:
            InvalidInputError: if the arrays' lengths disagree.
            InvalidTypeError: if an array has another dtype.
        """
        check_postings(rows, values, starts, ends, weights, scores)
        for start, end, weight in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
            scores[rows[start:end]] += weight * values[start:end].astype(np.float64)

    def select(
        self,
        scores: NDArray[np.float64],
        factors: NDArray[np.float64] | None,
        allowed: NDArray[np.bool_] | None,
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best k rows among those with a positive score, by float32(score * factor) descending, then row.

        A positive score whose value rounds to a float32 of 0.0 is still a match.

        Args:
            scores: f64[n]; finite.
            factors: f64[n], finite and at least 0, multiplied in float64; None for ones.
            allowed: bool[n]; None if every row is allowed.
            k: how many; at least 0.

        Returns:
            rows i64[<= k] and their values f32[<= k], best first.

        Raises:
            InvalidInputError: if the arrays' lengths disagree or k is negative.
            InvalidTypeError: if an array has another dtype.
        """
        check_selection(scores, factors, allowed, k)
        matches = scores > 0
        if allowed is not None:
            matches &= allowed
        rows = np.flatnonzero(matches)
        products = scores[rows] if factors is None else scores[rows] * factors[rows]
        with np.errstate(over="ignore"):  # a score above float32's range is infinite, in every kernel
            values = products.astype(np.float32)
        if 0 < k < len(rows):
            # Sorting only what can be among the best; every row that ties with the k-th stays in.
            contenders = values >= np.partition(values, len(values) - k)[len(values) - k]
            rows, values = rows[contenders], values[contenders]
        order = np.argsort(-values, kind="stable")[:k]
        return rows[order], values[order]


def check_postings(
    rows: NDArray[Any],
    values: NDArray[np.float32] | None,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    weights: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None:
    """Check what costs nothing to check: dtypes and lengths, never the postings themselves.

    Raises:
        InvalidInputError: if the arrays' lengths disagree.
        InvalidTypeError: if an array has another dtype.
    """
    if rows.dtype not in _ROW_TYPES:
        raise InvalidTypeError(
            f"rows must be uint16 or uint32, got {rows.dtype}: convert them when the segment is built"
        )
    _expect("starts", starts, np.int64)
    _expect("ends", ends, np.int64)
    _expect("weights", weights, np.float64)
    _expect("scores", scores, np.float64)
    if not len(starts) == len(ends) == len(weights):
        raise InvalidInputError(
            f"starts, ends and weights must be equally long, got {len(starts)}, {len(ends)} and {len(weights)}"
        )
    if values is not None:
        _expect("values", values, np.float32)
        if len(values) != len(rows):
            raise InvalidInputError(f"values must be as long as rows, got {len(values)} and {len(rows)}")


def check_selection(
    scores: NDArray[np.float64],
    factors: NDArray[np.float64] | None,
    allowed: NDArray[np.bool_] | None,
    k: int,
) -> None:
    """Check the arguments of `select`.

    Raises:
        InvalidInputError: if the arrays' lengths disagree or k is negative.
        InvalidTypeError: if an array has another dtype.
    """
    if k < 0:
        raise InvalidInputError(f"k must be at least 0, got {k}")
    _expect("scores", scores, np.float64)
    if factors is not None:
        _expect("factors", factors, np.float64)
        if len(factors) != len(scores):
            raise InvalidInputError(f"factors must be as long as scores, got {len(factors)} and {len(scores)}")
    if allowed is not None:
        _expect("allowed", allowed, np.bool_)
        if len(allowed) != len(scores):
            raise InvalidInputError(f"allowed must be as long as scores, got {len(allowed)} and {len(scores)}")


def _expect(name: str, array: NDArray[Any], dtype: Any) -> None:
    if array.dtype != np.dtype(dtype):
        raise InvalidTypeError(f"{name} must be {np.dtype(dtype)}, got {array.dtype}: convert with .astype")
