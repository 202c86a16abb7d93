"""Is one search better than another, or only luckier with its queries: paired bootstrap, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.inputs import as_count

_DRAWS_AT_ONCE = 1 << 22
_TINY = 1e-12  # sums of equal numbers in another order differ by less


@dataclass(frozen=True)
class Comparison:
    """The difference of two means over the same queries.

    Attributes:
        difference: mean of `a` minus mean of `b`.
        low, high: confidence interval of the difference.
        p_value: two-sided; the chance of a difference this large if the two were equally good.
        n: number of queries.
        wins, losses: queries at which `a` is better, and worse.
    """

    difference: float
    low: float
    high: float
    p_value: float
    n: int
    wins: int
    losses: int


def bootstrap(
    a: Sequence[float] | NDArray[np.float64],
    b: Sequence[float] | NDArray[np.float64],
    *,
    samples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Paired bootstrap test (Efron and Tibshirani 1993, section 16.4) of two lists of values for the same queries.

    Queries are drawn with replacement, `samples` times. The interval is of percentiles of the mean difference; the
    p-value is the share of samples whose mean difference, shifted to a true difference of 0, is at least as far from 0
    as the one seen, counting what was seen as a sample of its own: (1 + hits) / (1 + samples).

    Args:
        a: f64[n], one value per query.
        b: f64[n], in the same order.
        samples: how many; at least 1.
        confidence: of the interval, between 0 and 1.
        seed: of the draws; the same seed and values give the same result.

    Raises:
        InvalidInputError, InvalidTypeError: if the lists are empty, not finite or of different lengths, or a setting
            has no usable value.
    """
    samples = as_count("samples", samples, least=1)
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence={confidence!r} must lie between 0 and 1")
    differences = _values("a", a) - _paired(a, b)
    seen = float(differences.mean())
    means = _resampled_means(differences, samples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    hits = int(np.count_nonzero(np.abs(means - seen) >= abs(seen) - _TINY))
    return Comparison(
        seen,
        float(low),
        float(high),
        (1 + hits) / (1 + samples),
        len(differences),
        int(np.count_nonzero(differences > 0)),
        int(np.count_nonzero(differences < 0)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for testing several differences at once, in the order given.

    Raises:
        InvalidInputError: if a value does not lie between 0 and 1.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise InvalidInputError("p_values must lie between 0 and 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _resampled_means(values: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    n = len(values)
    block = max(1, _DRAWS_AT_ONCE // n)
    means = np.empty(samples)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        means[start : start + rows] = values[rng.integers(n, size=(rows, n), dtype=np.int32)].mean(axis=1)
    return means


def _values(name: str, values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or not math.isfinite(float(array.sum())):
        raise InvalidInputError(f"{name} has shape {array.shape}; give finite numbers, one for each query")
    return array


def _paired(a: Any, b: Any) -> NDArray[np.float64]:
    array = _values("b", b)
    if len(array) != len(np.asarray(a)):
        raise InvalidInputError(f"a has {len(np.asarray(a))} values and b has {len(array)}; both need the same queries")
    return array
