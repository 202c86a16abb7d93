"""Several first stages as one ranking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.fusion import reciprocal_rank_fusion
from sidr_rag.inputs import as_count
from sidr_rag.rerank.bm25 import Bm25
from sidr_rag.search.scan import SeqHits

PLAIN_STAGES = ("sidr", "lexical", "overlap", "bm25")
METHODS = ("rrf", "weighted")


@dataclass(frozen=True)
class Fusion:
    """First stages whose rankings are fused: `sidr.search(query, first_stage=Fusion(("sidr", "bm25")))`.

    `first_stage="sidr+bm25"` is the same. With "rrf" a passage's score is `sum_i weight_i / (constant + rank_i)`; with
    "weighted" it is `sum_i weight_i * score_i`, each stage's scores moved to 0..1 by the least and the greatest of its
    own list, and 0 for a passage that is not in it.

    Attributes:
        stages: two or more of "sidr", "lexical", "overlap", "bm25" and `Bm25`.
        weights: one for each stage; all 1 by default.
        method: "rrf" or "weighted".
        constant: of "rrf": how little the first places stand out.
        depth: how many of each stage's passages take part, at least; more where k or rerank asks for more.
    """

    stages: tuple[str | Bm25, ...]
    weights: tuple[float, ...] | None = None
    method: str = "rrf"
    constant: float = 60.0
    depth: int = 200

    def __post_init__(self) -> None:
        if isinstance(self.stages, str) or not isinstance(self.stages, Sequence):
            raise InvalidTypeError(f"stages={self.stages!r} is a {type(self.stages).__name__}; give several stages")
        object.__setattr__(self, "stages", tuple(self.stages))
        for stage in self.stages:
            if not isinstance(stage, Bm25) and stage not in PLAIN_STAGES:
                raise InvalidInputError(f"stages: {stage!r} is not known; choose of {', '.join(PLAIN_STAGES)}")
        if len(self.stages) < 2 or len(set(self.stages)) < len(self.stages):
            raise InvalidInputError(f"stages={self.stages!r} must be two or more, all different")
        if self.method not in METHODS:
            raise InvalidInputError(f"method={self.method!r} is not known; choose one of {METHODS}")
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(self.weights))
        shares = self.shares
        if len(shares) != len(self.stages) or not all(_positive(w) for w in shares):
            raise InvalidInputError(f"weights={self.weights!r} must hold one positive number for each stage")
        if not _positive(self.constant) and self.constant != 0:
            raise InvalidInputError(f"constant={self.constant!r} must be a finite number of at least 0")
        as_count("depth", self.depth, least=1)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weight of each stage."""
        return (1.0,) * len(self.stages) if self.weights is None else self.weights

    def fuse(self, lists: Sequence[SeqHits], k: int) -> SeqHits:
        """One query's lists, one of each stage, as one: score descending, then seq ascending."""
        scores: dict[int, float] = {}
        if self.method == "rrf":
            rankings = [seqs.tolist() for seqs, _ in lists]
            scores = dict(reciprocal_rank_fusion(rankings, weights=self.shares, constant=self.constant))
        else:
            for (seqs, values), share in zip(lists, self.shares, strict=True):
                low, high = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
                spread = high - low
                for seq, value in zip(seqs.tolist(), values.tolist(), strict=True):
                    scores[seq] = scores.get(seq, 0.0) + share * ((value - low) / spread if spread > 0 else 1.0)
        seqs = np.array(list(scores), dtype=np.uint64)
        fused = np.array(list(scores.values()), dtype=np.float32)
        order = np.lexsort((seqs, -fused))[:k]
        return seqs[order], fused[order]


FirstStage: TypeAlias = "str | Bm25 | Fusion"


def first_stage_of(choice: object) -> FirstStage:
    """What a `first_stage` argument stands for; "a+b" is their reciprocal rank fusion, "bm25" is `Bm25()`.

    Raises:
        InvalidInputError, InvalidTypeError: naming the choices.
    """
    if isinstance(choice, (Bm25, Fusion)):
        return choice
    if not isinstance(choice, str):
        raise InvalidTypeError(
            f"first_stage is a {type(choice).__name__}; give one of {', '.join(map(repr, PLAIN_STAGES))}, a Bm25 or a "
            "Fusion"
        )
    parts = choice.split("+")
    if any(part not in PLAIN_STAGES for part in parts):
        raise InvalidInputError(
            f"first_stage={choice!r} is not known; choose one of {', '.join(map(repr, PLAIN_STAGES))}, or several with "
            "'+' between them"
        )
    if len(parts) > 1:
        return Fusion(tuple(parts))
    return Bm25() if choice == "bm25" else choice


def _positive(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and value > 0
