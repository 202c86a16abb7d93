"""What a second stage makes of passages in training and tuning: read once, scored as late search scores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.windows import chunks
from sidr_rag.rerank.late import blend_scores
from sidr_rag.rerank.maxsim import maxsim, signs_of
from sidr_rag.search.searcher import pairwise_scores
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import active_vectors, token_states

_BATCH = 64
# What each second stage is made of. Each further part is half of what those before it and it give together.
PARTS = {
    "theta": ("theta",),
    "dense": ("dense",),
    "maxsim": ("maxsim",),
    "both": ("theta", "dense"),
    "all": ("theta", "dense", "maxsim"),
}


@dataclass(frozen=True)
class ReadCandidates:
    """Passages as the parts of a second stage see them, row by row; empty where no part asks for it.

    Attributes:
        parts: values of `PARTS`.
        theta: V_theta, dims and weights.
        dense: f32[hidden] each.
        signs: of the tokens' vectors, packed.
    """

    parts: Sequence[str]
    theta: list[tuple[NDArray[np.int32], NDArray[np.float32]]]
    dense: list[NDArray[np.float32]]
    signs: list[NDArray[np.uint8]]

    def scores(
        self,
        weights: tuple[NDArray[np.int32], NDArray[np.float32]],
        dense: NDArray[np.float32],
        tokens: tuple[NDArray[np.float32], NDArray[np.float64]] | None,
        rows: Sequence[int],
    ) -> NDArray[np.float64]:
        """f64[len(rows)], without the first stage's score.

        Args:
            weights: w(q), for V_theta of passages.
            dense: f32[hidden], the query's.
            tokens: the query's, of length 1, and their shares; see `sidr_rag.rerank.maxsim`.
            rows: which passages.
        """

        def part(name: str) -> NDArray[np.float64]:
            if name == "theta":
                return pairwise_scores(weights, [self.theta[row] for row in rows]).astype(np.float64)
            if name == "dense":
                return np.array([self.dense[row] @ dense for row in rows], dtype=np.float64)
            assert tokens is not None
            return maxsim(*tokens, [self.signs[row] for row in rows])

        return reduce(lambda one, other: blend_scores(one, other, 0.5), map(part, self.parts))


@torch.no_grad()
def read_candidates(
    encoder: TrainableEncoder, reader: TextReader, contents: Sequence[str], parts: Sequence[str], k: int
) -> ReadCandidates:
    """Read passages once for all parts of a second stage.

    Args:
        encoder: of passages, in evaluation mode.
        reader: texts to tokens.
        contents: the passages.
        parts: what the second stage is made of, a value of `PARTS`.
        k: active dimensions of V_theta.
    """
    found = ReadCandidates(parts, [], [], [])
    for texts in chunks(contents, _BATCH):
        read = encoder.encode([reader.passage(text) for text in texts])
        if "theta" in parts:
            active = active_vectors(encoder, read, reader.own_dims(texts), k)
            found.theta.extend(active.sparse(active.theta, len(reader.token_ids), k))
        if "dense" in parts:
            found.dense.extend(encoder.dense(read).cpu().numpy())
        if "maxsim" in parts:
            found.signs.extend(signs_of(states) for states in token_states(read))
    return found
