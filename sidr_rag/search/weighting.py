"""What turns an encoder's query vector into the weights, gains and factors of the scoring contract."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.types import SparseVectors

_BLENDS = ("theta_blend", "expansion_blend")


@dataclass(frozen=True)
class Weighting:
    """Constants of `score(d) = s(d) * sum_l gain_l * sum_t w(t) * [count(t, d) >= n_l]`; they belong to a model.

    Attributes:
        levels: the n_l, ascending, starting at 1.
        gains: one positive gain per level.
        idf_exponent: w(t) is multiplied by idf(t) to this power; 0 leaves the corpus out.
        length_exponent: s(d) = (1 - length_slope + length_slope * length / average) ** -length_exponent.
        length_slope: how much of the length counts, 0 to 1.
        theta_blend: None: w = V_theta(q), as in the paper; else w = own words + theta_blend * V_theta(q).
        expansion_blend: what takes the place of theta_blend on words that the query does not hold; None: theta_blend.
    """

    levels: tuple[int, ...] = (1,)
    gains: tuple[float, ...] = (1.0,)
    idf_exponent: float = 0.0
    length_exponent: float = 0.0
    length_slope: float = 0.0
    theta_blend: float | None = None
    expansion_blend: float | None = None

    def __post_init__(self) -> None:
        for name, kind in (("levels", int), ("gains", float)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or not all(_is_number(v, kind) for v in values):
                raise InvalidTypeError(f"weighting.{name}={values!r} must be a tuple of {kind.__name__} numbers")
        for name in ("idf_exponent", "length_exponent", "length_slope", *_BLENDS):
            value = getattr(self, name)
            if not _is_number(value, float) and not (name in _BLENDS and value is None):
                raise InvalidTypeError(f"weighting.{name}={value!r} is a {type(value).__name__}; give a number")
        if (
            not self.levels
            or self.levels[0] != 1
            or any(b <= a for a, b in zip(self.levels, self.levels[1:], strict=False))
        ):
            raise InvalidInputError(f"weighting.levels={self.levels!r} must start at 1 and ascend")
        if len(self.gains) != len(self.levels) or any(not (math.isfinite(g) and g > 0) for g in self.gains):
            raise InvalidInputError(f"weighting.gains={self.gains!r} must hold one positive number for each level")
        for name in ("idf_exponent", "length_exponent", "length_slope"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInputError(f"weighting.{name}={value!r} must be a finite number of at least 0")
        if self.length_slope > 1:
            raise InvalidInputError(f"weighting.length_slope={self.length_slope!r} must be at most 1")
        for name in _BLENDS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InvalidInputError(f"weighting.{name}={value!r} must be None or at least 0")
        if self.expansion_blend is not None and self.theta_blend is None:
            raise InvalidInputError(
                f"weighting.expansion_blend={self.expansion_blend!r} needs a theta_blend: without one the query's own "
                "words have no part of their own"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Weighting:
        """Read from JSON values; unknown keys are refused by name."""
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise InvalidInputError(
                f"weighting has unknown settings {unknown}; known: {sorted(cls.__dataclass_fields__)}"
            )
        parts = dict(values)
        for name in ("levels", "gains"):
            if name in parts:
                parts[name] = tuple(parts[name]) if isinstance(parts[name], list | tuple) else parts[name]
        return cls(**parts)

    def to_mapping(self) -> dict[str, Any]:
        """JSON values from which `from_mapping` makes the same weighting."""
        return asdict(self)


def _is_number(value: Any, kind: type) -> bool:
    return not isinstance(value, bool) and isinstance(value, int if kind is int else (int, float))


BINARY = Weighting()


def idf(df: NDArray[np.int64], n_live: int) -> NDArray[np.float64]:
    """Inverse document frequency, always positive: ln(1 + (n - df + 0.5) / (df + 0.5)), f64 like df.

    The form of BM25 that Lucene uses (Robertson and Zaragoza 2009, section 3.1, with 1 added inside the logarithm).
    """
    counts = df.astype(np.float64)
    return np.log1p((n_live - counts + 0.5) / (counts + 0.5))


def weigh_queries(
    theta: SparseVectors, own: SparseVectors, weighting: Weighting, df: NDArray[np.int64], n_live: int
) -> SparseVectors:
    """w(t) of the scoring contract for each query.

    Args:
        theta: the encoder's vectors (or any other representation of the queries).
        own: the queries' bags of tokens, weights 1.
        weighting: the constants.
        df: i64[dim]; live passages that hold each dimension.
        n_live: number of live passages.
    """
    if len(theta) != len(own):
        raise InvalidInputError(f"own must have a row for each of theta's, got {len(own)} and {len(theta)}")
    indptr, dims, weights = theta.indptr, theta.dims, theta.weights.astype(np.float64)
    if weighting.theta_blend is not None:
        expansion = weighting.theta_blend if weighting.expansion_blend is None else weighting.expansion_blend
        indptr, dims, weights = _blended(theta, own, weighting.theta_blend, expansion)
    if weighting.idf_exponent and len(dims):
        weights = weights * idf(df[dims], n_live) ** weighting.idf_exponent
    return SparseVectors(indptr, dims, weights.astype(np.float32), theta.dim)


def heaviest(vectors: SparseVectors, own: SparseVectors, k: int) -> SparseVectors:
    """Each row on its k heaviest dimensions (of equal ones the lowest) united with those of `own`.

    Args:
        vectors: weights of any kind.
        own: a row for each, such as the texts' bags.
        k: at least 1.
    """
    rows = []
    for (dims, weights), (kept, _) in zip(vectors, own, strict=True):
        keep = np.isin(dims, kept)
        keep[np.argsort(-weights, kind="stable")[:k]] = True
        rows.append((dims[keep], weights[keep]))
    return SparseVectors.from_rows(rows, vectors.dim)


def without_light_weights(vectors: SparseVectors, weight_floor: float) -> SparseVectors:
    """Each row without the dimensions whose weight is less than a share of the row's greatest.

    An approximation by choice: what is left out is missing from every score.

    Args:
        vectors: weights of any kind, such as `weigh_queries` gives.
        weight_floor: the share, 0 (nothing is left out) to 1.

    Raises:
        InvalidInputError: if the share is outside 0 to 1.
    """
    if not 0 <= weight_floor <= 1:
        raise InvalidInputError(f"weight_floor={weight_floor!r} must be a share from 0 to 1")
    keep = np.ones(len(vectors.dims), np.bool_)
    for a, b in itertools.pairwise(vectors.indptr.tolist()):
        if b > a:
            keep[a:b] = vectors.weights[a:b] >= weight_floor * float(vectors.weights[a:b].max())
    kept = np.concatenate([[0], np.cumsum(keep)])
    return SparseVectors(kept[vectors.indptr], vectors.dims[keep], vectors.weights[keep], vectors.dim)


def _blended(
    theta: SparseVectors, own: SparseVectors, share: float, expansion: float
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Rows of `1 + share * theta` on own words and `expansion * theta` on others, as indptr, dims and f64 weights."""
    n = len(theta)
    row_of = np.repeat(np.arange(n), np.diff(theta.indptr)), np.repeat(np.arange(n), np.diff(own.indptr))
    keys = np.concatenate([row_of[0] * theta.dim + theta.dims, row_of[1] * theta.dim + own.dims])
    learned = np.concatenate([theta.weights.astype(np.float64), np.zeros(len(own.dims))])
    order = np.argsort(keys, kind="stable")
    keys, learned = keys[order], learned[order]
    is_own = order >= len(theta.dims)
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1  # an own word that theta holds: it stands after theta's
    learned[again] = learned[again - 1]
    keep = np.ones(len(keys), np.bool_)
    keep[again - 1] = False
    keys, learned, is_own = keys[keep], learned[keep], is_own[keep]
    weights = np.where(is_own, 1.0 + share * learned, expansion * learned)
    indptr = np.searchsorted(keys, np.arange(n + 1) * theta.dim)
    return indptr, (keys - np.repeat(np.arange(n) * theta.dim, np.diff(indptr))).astype(np.int32), weights
