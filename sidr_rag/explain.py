"""Why a passage has its score: the part of each token, summing to the score."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.protocols import Vocabulary
from sidr_rag.rerank.codecs import Vector
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors


@dataclass(frozen=True)
class TokenPart:
    """What one token adds to a score.

    Attributes:
        token: as the vocabulary spells it.
        dim: its dimension.
        weight: of the query: w(t), what the weighting makes of V_theta(q).
        levels: in how many of the levels the passage holds it; 0 where the score knows no levels.
        contribution: beta search: s(d) * w(t) * the gains of those levels; full search: weight * passage_weight.
        in_query: whether the token is one of the query's own, or the encoder added it.
        passage_weight: V_theta(p) of the token, where the score has it.
        in_passage: whether the token is one of the passage's own, or the encoder added it.
    """

    token: str
    dim: int
    weight: float
    levels: int
    contribution: float
    in_query: bool
    passage_weight: float | None = None
    in_passage: bool = True


@dataclass(frozen=True)
class Explanation:
    """The parts of one passage's score for one query, greatest first.

    Shows itself as a table where rich prints it, and as a chart by `plot`.

    Attributes:
        passage_id: the passage.
        score: f32, the score that the search gives it; the contributions add up to it within rounding.
        length_factor: s(d); 1 where the score knows none.
        parts: tokens that query and passage share.
        missed: the query's own tokens that the passage does not hold.
        search: whose score it is: "beta", "full" or "alpha".
    """

    passage_id: str
    score: float
    length_factor: float
    parts: tuple[TokenPart, ...]
    missed: tuple[str, ...]
    search: str = "beta"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "parts": [asdict(part) for part in self.parts], "missed": list(self.missed)}

    def plot(self, ax: Any = None, *, most: int = 15) -> Any:
        """A bar chart of the greatest parts, by matplotlib.

        Args:
            ax: the axes to draw on; new ones by default.
            most: how many tokens have a bar of their own.

        Returns:
            the axes.

        Raises:
            MissingExtraError: if matplotlib is absent.
        """
        from sidr_rag.explain_view import chart

        return chart(self, ax, most)

    def __rich__(self) -> Any:
        from sidr_rag.explain_view import table

        return table(self)


def explain_beta(
    passage_id: str,
    view: SegmentView,
    row: int,
    vectors: SparseVectors,
    own: SparseVectors,
    weighting: Weighting,
    index: BotIndex,
    vocabulary: Vocabulary,
) -> Explanation:
    """Split the score of one row of a segment for the one query in `vectors` (weights w(t)) and `own` (its bag)."""
    dims, weights = vectors.row(0)
    own_dims = set(own.row(0)[0].tolist())
    factors = index.length_factors(view, weighting.length_exponent, weighting.length_slope)
    factor = 1.0 if factors is None else float(factors[row])
    gains = dict(zip(weighting.levels, weighting.gains, strict=True))
    total = 0.0
    gained = np.zeros(len(dims), dtype=np.float64)
    held = np.zeros(len(dims), dtype=np.int64)
    for level in view.segment.levels:
        if level.threshold in gains:
            here = np.isin(dims, level.dims_of(row)) & (weights > 0)
            for w in weights[here].astype(np.float64) * gains[level.threshold]:
                total += float(w)
            gained[here] += gains[level.threshold]
            held[here] += 1
    parts = [
        TokenPart(
            vocabulary.token(int(dims[i])),
            int(dims[i]),
            float(weights[i]),
            int(held[i]),
            float(factor * weights[i].astype(np.float64) * gained[i]),
            int(dims[i]) in own_dims,
        )
        for i in np.flatnonzero(held)
    ]
    parts.sort(key=lambda p: (-p.contribution, p.dim))
    bag = set(view.segment.levels[0].dims_of(row).tolist())
    missed = tuple(vocabulary.token(d) for d in sorted(own_dims - bag))
    return Explanation(passage_id, float(np.float32(total * factor)), factor, tuple(parts), missed)


def explain_full(
    passage_id: str,
    query: Vector,
    passage: Vector,
    own: SparseVectors,
    passage_own: SparseVectors,
    vocabulary: Vocabulary,
    search: str = "full",
) -> Explanation:
    """Split <w(q), V_theta(p)>, added up as full search adds it.

    Args:
        passage_id: the passage.
        query: dims ascending and weights w(t) of V_theta(q), or of another representation.
        passage: the same of V_theta(p), as the cache rounds it.
        own: the query's bag, one row.
        passage_own: the passage's bag, one row.
        vocabulary: names the dimensions.
        search: "full" or "alpha".
    """
    own_dims, passage_dims = set(own.row(0)[0].tolist()), set(passage_own.row(0)[0].tolist())
    shared, at_query, at_passage = np.intersect1d(query[0], passage[0], assume_unique=True, return_indices=True)
    weights, values = query[1][at_query], passage[1][at_passage]
    products = weights.astype(np.float64) * values.astype(np.float64)
    # cumsum adds in order; np.sum adds pairwise and would give other bits than the search.
    total = float(np.float32(products.cumsum()[-1])) if len(products) else 0.0
    parts = [
        TokenPart(
            vocabulary.token(dim),
            dim,
            float(weight),
            0,
            float(product),
            dim in own_dims,
            float(value),
            dim in passage_dims,
        )
        for dim, weight, value, product in zip(shared.tolist(), weights, values, products, strict=True)
        if product > 0
    ]
    parts.sort(key=lambda p: (-p.contribution, p.dim))
    held = set(passage[0].tolist())
    missed = tuple(vocabulary.token(d) for d in sorted(own_dims - held))
    return Explanation(passage_id, total, 1.0, tuple(parts), missed, search)
