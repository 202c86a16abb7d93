"""Integer sums: how weights are rounded so that sums fit 16 bits, and which rows can then be among the k best.

Let S(d) be a row's sum of gain * w(t) over what it shares with the query, and s(d) its length factor; rows are ordered
by float32(S * s), then row. A scan adds q = ceil(gain * w * scale) instead, at least 1, so that a sum A(d) of m(d)
addends, at most as many as the query has dimensions and as the row has, keeps

    A - m < S * scale <= A                                                                    (1)

and is 0 only for rows that share nothing. `scale_of` makes it fit: a row of at most c dimensions sums to at most
scale * (the c greatest weights) + c <= 65,535. Factors are rounded down to steps F = floor(s * C), C = 65,535 / max s,
at least 1, and a scan orders rows by K = (A * F >> 16) + [A > 0]. In units of U = S * s * scale * C / 65,536, by (1):

    U <= A (F + 1) / 65,536 < A * F / 65,536 + 1 < K + 1                                      (2)
    U > (A - m)(F - 1) / 65,536 >= A * F / 65,536 - m - 1 >= K - m - 2 for A > 0              (3)

(F - 1 covers an F raised to 1.) Without factors K = A, and (1) is stricter than both. So let L be the k-th greatest
K - m - 2, or 0 if fewer than k rows have K > 0: by (3), k rows have U >= L, and by (2) a row among the k best has
K + 1 > U >= L, less what floating point rounds. That is under 0.01 units: a relative 2**-23 of at most 65,536 units
for the order by float32, where a unit is above float32's least number (`scale_of` sees to that), and some 2**-40 for
the products in float64. Hence every row among the k best has

    K >= max(1, L - 2)

and those rows are scored again, canonically. All of this needs no more than that weights, gains and factors are
positive; a scan that finds too many such rows gives way to plain accumulation.

Leaving out addends, R together, only lowers A, so (3) still bounds U from below; and with them A, hence K, would be
greater by R at most, and by 1 for the rounding of the shift. So every row among the k best has K >= L - 2 - (R + 1),
if that is at least 1, for otherwise rows that were not met at all could be among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BATCH = 32  # queries that one scan of forward lists serves
_TOP = 65_535
_LEAST_SCALE = 8_192  # of the sum: below it, rounding up would take most of the 16 bits
_LEAST, _MOST = 1e-34, 1e34  # scores whose float32 is neither rounded coarsely nor infinite


@dataclass(frozen=True)
class Query:
    """One query's part of the scoring contract.

    Attributes:
        dims: i32[m], ascending.
        weights: f64[m], positive.
        gains: f64[n_levels]; 0 for levels that do not count.
    """

    dims: NDArray[np.int32]
    weights: NDArray[np.float64]
    gains: NDArray[np.float64]

    def top_sum(self, n: int) -> float:
        """The sum of the n greatest weights."""
        return self._total if n == len(self.weights) else float(self._top_sums[n - 1])

    @cached_property
    def _total(self) -> float:
        return float(self.weights.sum())

    @cached_property
    def _top_sums(self) -> NDArray[np.float64]:
        return np.cumsum(np.sort(self.weights)[::-1])


def scale_of(query: Query, longest: NDArray[np.int64], top_factor: float) -> float:
    """The scale of a query's integer weights, or 0.0 where integers cannot tell rows apart.

    Args:
        query: its weights.
        longest: i64[n_levels]: the most dimensions that a row holds in each level.
        top_factor: the greatest length factor; 1 without factors.
    """
    if not len(query.dims):
        return 0.0
    total, addends = 0.0, 0
    for gain, most in zip(query.gains.tolist(), longest.tolist(), strict=True):
        if gain and most:
            count = min(len(query.dims), most)
            total += gain * query.top_sum(count)
            addends += count
    if not (_LEAST < total < _MOST and _LEAST < total * top_factor < _MOST) or _TOP - addends < _LEAST_SCALE:
        return 0.0
    return (_TOP - addends - 1) / total


def steps_of(factors: NDArray[np.float64], top: float) -> NDArray[np.uint16]:
    """F of length factors, u16 like `factors`.

    Args:
        factors: positive and finite.
        top: the greatest factor of any row; what is above belongs to none.
    """
    return np.clip(np.floor(factors * (_TOP / top)), 1, _TOP).astype(np.uint16)


def integer_weights(query: Query, level: int, scale: float) -> NDArray[np.uint16]:
    """The weights of one level as integers (q), u16[m]."""
    rounded: NDArray[np.float64] = np.ceil(query.gains[level] * query.weights * scale)
    return np.maximum(rounded, 1.0).astype(np.uint16)
