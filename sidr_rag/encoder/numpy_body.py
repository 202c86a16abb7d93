"""The body of BERT in NumPy: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.activations import gelu_inplace
from sidr_rag.encoder.blas_threads import few_threads
from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import BertSizes

Array = NDArray[np.float32]

_TOKEN_MULTIPLE = 4  # BLAS kernels take other widths much more slowly


class NumpyBody:
    """BERT without a head. Immutable once built, so threads may share it.

    Sequences are laid end to end instead of padded, so no text can see another's length. States are f32[width, tokens]:
    a large matrix times a few columns takes half the time of a few rows times its transpose.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; of these "embeddings.*" and "encoder.*" are read, and
            their memory is shared.
        sizes: the body's shape.
    """

    batch_tokens = 1024

    def __init__(self, weights: Weights, sizes: BertSizes) -> None:
        self._weights = weights
        self._sizes = sizes

    def states(self, sequences: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None = None) -> Array:
        """Last hidden states.

        Args:
            sequences: token ids with special ones; each at least one and at most `max_position_embeddings` long.
            kinds: token types (0 or 1) of each token; all 0 by default.

        Returns:
            f32[hidden, tokens] of all sequences end to end; columns of no meaning fill the last kernel's width.
        """
        bounds = bounds_of(sequences)
        ids = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
        positions = np.concatenate([np.arange(len(sequence)) for sequence in sequences])
        embedded = self._weights["embeddings.word_embeddings.weight"][ids]
        embedded += self._weights["embeddings.position_embeddings.weight"][positions]
        types = self._weights["embeddings.token_type_embeddings.weight"]
        embedded += types[0] if kinds is None else types[np.concatenate([np.asarray(row) for row in kinds])]
        columns = -(-len(ids) // _TOKEN_MULTIPLE) * _TOKEN_MULTIPLE
        states = np.zeros((self._sizes.hidden_size, columns), dtype=np.float32)
        states[:, : len(ids)] = embedded.T
        states = self.layer_norm(states, "embeddings.LayerNorm", self._sizes.layer_norm_eps)
        for i in range(self._sizes.num_hidden_layers):
            states = self._layer(states, bounds, f"encoder.layer.{i}")
        return states

    def summaries(
        self,
        sequences: Sequence[Sequence[int]],
        pooling: str,
        kinds: Sequence[Sequence[int]] | None = None,
    ) -> Array:
        """One vector for each sequence: the mean of its last hidden states ("mean"), or the first one ("cls").

        Returns:
            f32[len(sequences), hidden].
        """
        bounds = bounds_of(sequences)
        with few_threads(bounds[-1]):
            states = self.states(sequences, kinds)
        return summaries_of(states, bounds, pooling)

    def token_states(self, sequences: Sequence[Sequence[int]]) -> list[Array]:
        """The last hidden states of each sequence, f32[tokens, hidden], special tokens included."""
        bounds = bounds_of(sequences)
        with few_threads(bounds[-1]):
            states = self.states(sequences)
        return states_of(states, bounds)

    def linear(self, x: Array, name: str) -> Array:
        """A linear layer over columns."""
        y: Array = self._weights[f"{name}.weight"] @ x
        y += self._weights[f"{name}.bias"][:, None]
        return y

    def layer_norm(self, x: Array, name: str, eps: float) -> Array:
        """A LayerNorm of each column."""
        # Means as vector products: BLAS sums in several accumulators, NumPy along this axis in one.
        mean = np.full(len(x), 1 / len(x), dtype=np.float32)
        centred: Array = x - mean @ x
        centred /= np.sqrt(mean @ (centred * centred) + np.float32(eps))
        centred *= self._weights[f"{name}.weight"][:, None]
        centred += self._weights[f"{name}.bias"][:, None]
        return centred

    def _layer(self, states: Array, bounds: list[int], name: str) -> Array:
        eps = self._sizes.layer_norm_eps
        attended = self.linear(
            self._attention(states, bounds, f"{name}.attention.self"), f"{name}.attention.output.dense"
        )
        attended += states
        states = self.layer_norm(attended, f"{name}.attention.output.LayerNorm", eps)
        inner = gelu_inplace(self.linear(states, f"{name}.intermediate.dense"))
        output = self.linear(inner, f"{name}.output.dense")
        output += states
        return self.layer_norm(output, f"{name}.output.LayerNorm", eps)

    def _attention(self, states: Array, bounds: list[int], name: str) -> Array:
        hidden, columns = states.shape
        heads = self._sizes.num_attention_heads
        query, key, value = (
            self.linear(states, f"{name}.{part}").reshape(heads, hidden // heads, columns)
            for part in ("query", "key", "value")
        )
        query *= np.float32((hidden // heads) ** -0.5)
        context = np.zeros_like(query)
        for a, b in pairwise(bounds):
            scores = query[:, :, a:b].transpose(0, 2, 1) @ key[:, :, a:b]
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            context[:, :, a:b] = value[:, :, a:b] @ scores.transpose(0, 2, 1)
        return context.reshape(hidden, columns)


def summaries_of(states: Array, bounds: list[int], pooling: str) -> Array:
    """f32[len(bounds) - 1, hidden] of states f32[hidden, tokens]: each sequence's mean, or its first one ("cls")."""
    if pooling == "cls":
        return np.ascontiguousarray(states[:, bounds[:-1]].T)
    vectors = np.empty((len(bounds) - 1, len(states)), dtype=np.float32)
    for i, (a, b) in enumerate(pairwise(bounds)):
        np.mean(states[:, a:b], axis=1, out=vectors[i])
    return vectors


def states_of(states: Array, bounds: list[int]) -> list[Array]:
    """Each sequence's part f32[tokens, hidden] of states f32[hidden, tokens]."""
    return [np.ascontiguousarray(states[:, a:b].T) for a, b in pairwise(bounds)]


def bounds_of(sequences: Sequence[Sequence[int]]) -> list[int]:
    """Where each sequence starts when they stand end to end, and where the last one ends."""
    bounds: list[int] = np.cumsum([0, *(len(sequence) for sequence in sequences)]).tolist()
    return bounds
