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

_LOGIT_BLOCK = 1 << 20  # elements of the [tokens, dimensions] block held at once
_TRANSPOSE_ROWS = 256


class NumpyBert:
    """One side's encoder. Immutable once built, so threads may share it.

    Sequences are laid end to end instead of padded, so no text can see another's length.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`.
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
        self._layers = [_Layer(weights, i, config.bert) for i in range(config.bert.num_hidden_layers)]
        embeddings = weights["embeddings.word_embeddings.weight"]
        self._projection = _transposed_rows(weights.get("mlm.decoder.weight", embeddings), token_ids)
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
        hidden = self._head(self._body(sequences, bounds))
        pooled = np.empty((len(sequences), self._projection.shape[1]), dtype=np.float32)
        width = max(1024, _LOGIT_BLOCK // max(1, len(hidden)))
        for start in range(0, pooled.shape[1], width):
            logits = hidden @ self._projection[:, start : start + width]
            for i, (a, b) in enumerate(pairwise(bounds)):
                np.max(logits[a:b], axis=0, out=pooled[i, start : start + width])
        pooled += self._bias
        return pooled

    def _body(self, sequences: Sequence[Sequence[int]], bounds: list[int]) -> Array:
        """Last hidden states: f32[tokens, hidden]."""
        ids = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
        positions = np.concatenate([np.arange(len(sequence)) for sequence in sequences])
        hidden: Array = self._weights["embeddings.word_embeddings.weight"][ids]
        hidden += self._weights["embeddings.position_embeddings.weight"][positions]
        hidden += self._weights["embeddings.token_type_embeddings.weight"][0]
        hidden = _layer_norm(hidden, self._weights, "embeddings.LayerNorm", self._sizes.layer_norm_eps)
        for layer in self._layers:
            hidden = layer(hidden, bounds)
        return hidden

    def _head(self, hidden: Array) -> Array:
        if not self._mlm:
            return _layer_norm(hidden, self._weights, "ln", self._head_eps)
        hidden = gelu_inplace(_linear(hidden, self._weights, "mlm.dense"))
        return _layer_norm(hidden, self._weights, "mlm.LayerNorm", self._head_eps)


class _Layer:
    """One transformer layer over sequences laid end to end."""

    def __init__(self, weights: Weights, index: int, sizes: BertSizes) -> None:
        self._weights = weights
        self._prefix = f"encoder.layer.{index}"
        self._eps = sizes.layer_norm_eps
        self._heads = sizes.num_attention_heads
        names = [f"{self._prefix}.attention.self.{part}" for part in ("query", "key", "value")]
        # One product for the three projections; the query's carries the scores' scale, 1 / sqrt(head width).
        self._in_weight = np.concatenate([weights[f"{name}.weight"] for name in names])
        self._in_bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        scale = np.float32((sizes.hidden_size // sizes.num_attention_heads) ** -0.5)
        self._in_weight[: sizes.hidden_size] *= scale
        self._in_bias[: sizes.hidden_size] *= scale

    def __call__(self, hidden: Array, bounds: list[int]) -> Array:
        prefix, weights = self._prefix, self._weights
        attended = _linear(self._attention(hidden, bounds), weights, f"{prefix}.attention.output.dense")
        attended += hidden
        hidden = _layer_norm(attended, weights, f"{prefix}.attention.output.LayerNorm", self._eps)
        inner = gelu_inplace(_linear(hidden, weights, f"{prefix}.intermediate.dense"))
        output = _linear(inner, weights, f"{prefix}.output.dense")
        output += hidden
        return _layer_norm(output, weights, f"{prefix}.output.LayerNorm", self._eps)

    def _attention(self, hidden: Array, bounds: list[int]) -> Array:
        tokens, width = hidden.shape
        projected = hidden @ self._in_weight.T
        projected += self._in_bias
        # [3, heads, tokens, head width]: views whose inner matrices BLAS reads in place.
        query, key, value = projected.reshape(tokens, 3, self._heads, -1).transpose(1, 2, 0, 3)
        context = np.empty((tokens, self._heads, width // self._heads), dtype=np.float32)
        by_head = context.transpose(1, 0, 2)
        for a, b in pairwise(bounds):
            scores = query[:, a:b] @ key[:, a:b].transpose(0, 2, 1)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            by_head[:, a:b] = scores @ value[:, a:b]
        return context.reshape(tokens, width)


def _linear(x: Array, weights: Weights, name: str) -> Array:
    y: Array = x @ weights[f"{name}.weight"].T
    y += weights[f"{name}.bias"]
    return y


def _layer_norm(x: Array, weights: Weights, name: str, eps: float) -> Array:
    centred: Array = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    centred /= np.sqrt(variance + np.float32(eps))
    centred *= weights[f"{name}.weight"]
    centred += weights[f"{name}.bias"]
    return centred


def _transposed_rows(matrix: Array, rows: NDArray[np.int32]) -> Array:
    """f32[hidden, dim]: the chosen rows as columns; a short query's product with it takes half the time."""
    transposed = np.empty((matrix.shape[1], len(rows)), dtype=np.float32)
    for start in range(0, len(rows), _TRANSPOSE_ROWS):
        transposed[:, start : start + _TRANSPOSE_ROWS] = matrix[rows[start : start + _TRANSPOSE_ROWS]].T
    return transposed
