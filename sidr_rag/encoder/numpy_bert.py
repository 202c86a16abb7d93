"""BERT and its vocabulary heads in NumPy, so that a query is encoded without waiting for torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.activations import gelu_inplace
from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import BertSizes, ModelConfig
from sidr_rag.errors import InvalidInputError

Array = NDArray[np.float32]

_LOGIT_BLOCK = 1 << 20  # elements of the [dimensions, tokens] block held at once
_TOKEN_MULTIPLE = 4  # BLAS kernels take other widths much more slowly
_SHORT_TEXT = 20  # tokens


class NumpyBert:
    """One side's encoder. Immutable once built, so threads may share it.

    Sequences are laid end to end instead of padded, so no text can see another's length. States are f32[width, tokens]:
    a large matrix times a few columns takes half the time of a few rows times its transpose.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; their memory is shared.
        config: the model's configuration; `config.native` must hold.
        token_ids: i32[dim], the token id of every dimension.
    """

    batch_tokens = 1024

    def __init__(self, weights: Weights, config: ModelConfig, token_ids: NDArray[np.int32]) -> None:
        if config.bert is None:
            raise InvalidInputError(f"backend 'numpy' cannot run a {config.architecture!r}; use backend='torch'")
        self._weights = weights
        self._sizes: BertSizes = config.bert
        self._mlm = config.head == "mlm"
        self._head_eps = config.head_layer_norm_eps
        decoder = weights.get("mlm.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._projection = vocabulary_rows(decoder, token_ids)
        self._bias: Any = weights.get("logit_bias", np.float32(0))
        if self._mlm:
            self._bias = self._bias + weights["mlm.bias"][token_ids]

    def pooled_logits(self, sequences: Sequence[Sequence[int]]) -> Array:
        """Vocabulary logits, max-pooled over each sequence's tokens, [CLS] and [SEP] included.

        The activation is increasing, so pooling before it equals the paper's pooling after it.

        Args:
            sequences: token ids with [CLS] and [SEP]; each at least one and at most `max_position_embeddings` long.

        Returns:
            f32[len(sequences), dim].
        """
        bounds = np.cumsum([0, *(len(sequence) for sequence in sequences)]).tolist()
        states = self._head(self._body(sequences, bounds))
        pooled = np.empty((len(sequences), len(self._projection)), dtype=np.float32)
        height = max(1024, _LOGIT_BLOCK // states.shape[1])
        for start in range(0, len(self._projection), height):
            logits = self._projection[start : start + height] @ states
            for i, (a, b) in enumerate(pairwise(bounds)):
                _max_of_columns(logits[:, a:b], out=pooled[i, start : start + height])
        pooled += self._bias
        return pooled

    def _body(self, sequences: Sequence[Sequence[int]], bounds: list[int]) -> Array:
        """Last hidden states: f32[hidden, tokens]; columns of no meaning fill the last kernel's width."""
        ids = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
        positions = np.concatenate([np.arange(len(sequence)) for sequence in sequences])
        embedded = self._weights["embeddings.word_embeddings.weight"][ids]
        embedded += self._weights["embeddings.position_embeddings.weight"][positions]
        embedded += self._weights["embeddings.token_type_embeddings.weight"][0]
        columns = -(-len(ids) // _TOKEN_MULTIPLE) * _TOKEN_MULTIPLE
        states = np.zeros((self._sizes.hidden_size, columns), dtype=np.float32)
        states[:, : len(ids)] = embedded.T
        states = self._layer_norm(states, "embeddings.LayerNorm", self._sizes.layer_norm_eps)
        for i in range(self._sizes.num_hidden_layers):
            states = self._layer(states, bounds, f"encoder.layer.{i}")
        return states

    def _layer(self, states: Array, bounds: list[int], name: str) -> Array:
        eps = self._sizes.layer_norm_eps
        attended = self._linear(
            self._attention(states, bounds, f"{name}.attention.self"), f"{name}.attention.output.dense"
        )
        attended += states
        states = self._layer_norm(attended, f"{name}.attention.output.LayerNorm", eps)
        inner = gelu_inplace(self._linear(states, f"{name}.intermediate.dense"))
        output = self._linear(inner, f"{name}.output.dense")
        output += states
        return self._layer_norm(output, f"{name}.output.LayerNorm", eps)

    def _attention(self, states: Array, bounds: list[int], name: str) -> Array:
        hidden, columns = states.shape
        heads = self._sizes.num_attention_heads
        query, key, value = (
            self._linear(states, f"{name}.{part}").reshape(heads, hidden // heads, columns)
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

    def _head(self, states: Array) -> Array:
        if not self._mlm:
            return self._layer_norm(states, "ln", self._head_eps)
        states = gelu_inplace(self._linear(states, "mlm.dense"))
        return self._layer_norm(states, "mlm.LayerNorm", self._head_eps)

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = self._weights[f"{name}.weight"] @ x
        y += self._weights[f"{name}.bias"][:, None]
        return y

    def _layer_norm(self, x: Array, name: str, eps: float) -> Array:
        # Means as vector products: BLAS sums in several accumulators, NumPy along this axis in one.
        mean = np.full(len(x), 1 / len(x), dtype=np.float32)
        centred: Array = x - mean @ x
        centred /= np.sqrt(mean @ (centred * centred) + np.float32(eps))
        centred *= self._weights[f"{name}.weight"][:, None]
        centred += self._weights[f"{name}.bias"][:, None]
        return centred


def vocabulary_rows(matrix: Array, token_ids: NDArray[np.int32]) -> Array:
    """The rows of the dimensions' tokens; a view where they are consecutive, as with a vocabulary offset."""
    first = int(token_ids[0])
    if np.array_equal(token_ids, np.arange(first, first + len(token_ids))):
        return matrix[first : first + len(token_ids)]
    chosen: Array = matrix[token_ids]
    return chosen


def _max_of_columns(block: Array, out: Array) -> None:
    """Row-wise maximum of f32[rows, columns]; NumPy's own reduction is slow along a short axis."""
    if block.shape[1] > _SHORT_TEXT:
        np.max(block, axis=1, out=out)
        return
    out[...] = block[:, 0]
    for column in range(1, block.shape[1]):
        np.maximum(out, block[:, column], out=out)
