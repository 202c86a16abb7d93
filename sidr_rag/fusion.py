"""Several rankings as one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TypeVar

from sidr_rag.errors import InvalidInputError, InvalidTypeError

T = TypeVar("T", bound=Hashable)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[T]], *, weights: Sequence[float] | None = None, constant: float = 60.0
) -> list[tuple[T, float]]:
    """Fuse rankings of ids: `score(d) = sum_i weight_i / (constant + rank_i(d))`, ranks from 1.

    Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009), whose constant is 60. Scores of the rankings play no
    part, so any retrievers can be fused. Of an id that a ranking repeats, the first place counts.

    Args:
        rankings: ids, best first.
        weights: one for each ranking; all 1 if None.
        constant: how little the first places stand out.

    Returns:
        Every id once, with its score, best first; equal scores in the order of the best rank, then of the rankings.

    Raises:
        InvalidInputError: if the weights are not as many as the rankings, or a weight or the constant is negative or
            not finite.
    """
    shares = [1.0] * len(rankings) if weights is None else [_number(f"weights[{i}]", w) for i, w in enumerate(weights)]
    if len(shares) != len(rankings):
        raise InvalidInputError(f"weights has {len(shares)} items for {len(rankings)} rankings; give one for each")
    offset = _number("constant", constant)
    scores: dict[T, float] = {}
    first: dict[T, tuple[int, int]] = {}
    for i, (ranking, share) in enumerate(zip(rankings, shares, strict=True)):
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            scores[key] = scores.get(key, 0.0) + share / (offset + rank)
            first[key] = min(first.get(key, (rank, i)), (rank, i))
    return sorted(scores.items(), key=lambda item: (-item[1], first[item[0]]))


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidTypeError(f"{name}={value!r} is a {type(value).__name__}; give a number")
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{name}={value!r} must be finite and at least 0")
    return float(value)
