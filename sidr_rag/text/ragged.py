"""Growing lists of small integer lists in flat arrays: appended to in batches, gathered from at array speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class RaggedStore:
    """Entry n is a list of integers; entries get the numbers 0, 1, 2, ... in the order they are appended."""

    def __init__(self, dtype: DTypeLike) -> None:
        """Start empty; `dtype` is that of the values."""
        self._values: NDArray[Any] = np.empty(4096, dtype=dtype)
        self._starts = np.empty(1024, dtype=np.int64)
        self._lengths = np.empty(1024, dtype=np.int64)
        self._n_values = 0
        self._n_entries = 0

    @property
    def n_values(self) -> int:
        """How many values all entries hold together."""
        return self._n_values

    @property
    def n_entries(self) -> int:
        """How many entries there are."""
        return self._n_entries

    def append(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Append `len(lengths)` entries, which share out `values` in order."""
        self.put(np.arange(self._n_entries, self._n_entries + len(lengths)), values, lengths)

    def put(self, numbers: NDArray[Any], values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Append entries in another order than that of their values: the next numbers, each of them once."""
        n_values, n_entries = self._n_values + len(values), self._n_entries + len(lengths)
        self._values = with_room(self._values, self._n_values, n_values)
        self._starts = with_room(self._starts, self._n_entries, n_entries)
        self._lengths = with_room(self._lengths, self._n_entries, n_entries)
        self._values[self._n_values : n_values] = values
        self._starts[numbers] = self._n_values + np.cumsum(lengths) - lengths
        self._lengths[numbers] = lengths
        self._n_values, self._n_entries = n_values, n_entries

    def take(self, numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The values of the entries `numbers`, one entry after the other, and i64[len(numbers)] their lengths."""
        lengths = self._lengths[numbers]
        return self._values[places(self._starts[numbers], lengths)], lengths


def places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """All positions of the runs of `lengths[i]` entries from `starts[i]` on, one run after the other."""
    shifts = starts - np.cumsum(lengths)
    shifts += lengths
    at = np.repeat(shifts, lengths)
    at += np.arange(len(at))
    return at


def sums_by_run(lengths: NDArray[Any], run_lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum `lengths` over consecutive runs of `run_lengths` entries (0 allowed): i64[len(run_lengths)]."""
    totals = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=totals[1:])
    sums: NDArray[np.int64] = totals[np.cumsum(run_lengths)]
    sums[1:] -= sums[:-1].copy()
    return sums


def with_room(array: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    """The array itself if it holds `needed` entries, else a longer copy of its first `used` ones."""
    if needed <= len(array):
        return array
    grown = np.empty(max(needed, 2 * len(array)), dtype=array.dtype)
    grown[:used] = array[:used]
    return grown
