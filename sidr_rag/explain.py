"""Why a passage has its beta score: the part of each token, summing to the score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.protocols import Vocabulary
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors


@dataclass(frozen=True)
class TokenPart:
    """What one token adds to a score.

    Attributes:
        token: as the vocabulary spells it.
        dim: its dimension.
        weight: w(t) of the query.
        levels: in how many of the levels the passage holds it.
        contribution: s(d) * w(t) * the gains of those levels.
        in_query: whether the token is one of the query's own, or the encoder added it.
    """

    token: str
    dim: int
    weight: float
    levels: int
    contribution: float
    in_query: bool


@dataclass(frozen=True)
class Explanation:
    """The parts of one passage's beta score for one query, greatest first.

    Attributes:
        passage_id: the passage.
        score: the beta score, f32; the contributions add up to it within rounding.
        length_factor: s(d).
        parts: tokens that query and passage share.
        missed: the query's own tokens that the passage does not hold.
    """

    passage_id: str
    score: float
    length_factor: float
    parts: tuple[TokenPart, ...]
    missed: tuple[str, ...]


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
