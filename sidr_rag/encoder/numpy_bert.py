"""BERT's vocabulary heads in NumPy, so that a query is encoded without waiting for torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.activations import gelu_inplace
from sidr_rag.encoder.blas_threads import few_threads
from sidr_rag.encoder.checkpoint import Weights
from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.numpy_body import Array, NumpyBody, bounds_of, states_of, summaries_of
from sidr_rag.encoder.sparsify import Row
from sidr_rag.errors import InvalidInputError

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Summarized

_LOGIT_BLOCK = 1 << 20  # elements of the [dimensions, tokens] block held at once
_SHORT_TEXT = 20  # tokens


class NumpyBert:
    """One side's encoder. Immutable once built, so threads may share it.

    Args:
        weights: neutral name -> f32 array, see `checkpoint`; their memory is shared.
        config: the model's configuration; `config.native` must hold.
        token_ids: i32[dim], the token id of every dimension.

    Attributes:
        body: the same encoder without its vocabulary head.
        screens: False; NumPy multiplies no type faster than float32.
    """

    screens = False

    def __init__(self, weights: Weights, config: ModelConfig, token_ids: NDArray[np.int32]) -> None:
        if config.bert is None:
            raise InvalidInputError(f"backend 'numpy' cannot run a {config.architecture!r}; use backend='torch'")
        self.body = NumpyBody(weights, config.bert)
        self.batch_tokens = self.body.batch_tokens
        self._pooling = config.dense.pooling if config.dense else None
        self._mlm = config.head == "mlm"
        self._head_eps = config.head_layer_norm_eps
        decoder = weights.get("mlm.decoder.weight", weights["embeddings.word_embeddings.weight"])
        self._projection = vocabulary_rows(decoder, token_ids)
        self._bias: Any = weights.get("logit_bias", np.float32(0))
        if self._mlm:
            self._bias = self._bias + weights["mlm.bias"][token_ids]

    def pooled_logits(self, sequences: Sequence[Sequence[int]], summarized: Summarized | None = None) -> Array:
        """Vocabulary logits, max-pooled over each sequence's tokens, [CLS] and [SEP] included.

        The activation is increasing, so pooling before it equals the paper's pooling after it.

        Args:
            sequences: token ids with [CLS] and [SEP]; each at least one and at most `max_position_embeddings` long.
            summarized: told what the body makes of them, if the model has a dense head.

        Returns:
            f32[len(sequences), dim].
        """
        bounds = bounds_of(sequences)
        with few_threads(bounds[-1]):
            return self._pooled_logits(sequences, bounds, summarized)

    def best_logits(
        self,
        sequences: Sequence[Sequence[int]],
        own: Sequence[NDArray[np.int32]],
        k: int,
        summarized: Summarized | None = None,
    ) -> list[Row]:
        """All of `pooled_logits`, as rows: the k greatest and the own ones are among them."""
        every = np.arange(len(self._projection), dtype=np.int32)
        return [(every, row) for row in self.pooled_logits(sequences, summarized)]

    def _pooled_logits(
        self, sequences: Sequence[Sequence[int]], bounds: list[int], summarized: Summarized | None
    ) -> Array:
        last = self.body.states(sequences)
        if summarized is not None and self._pooling is not None:
            summarized(summaries_of(last, bounds, self._pooling), lambda: states_of(last, bounds))
        states = self._head(last)
        pooled = np.empty((len(sequences), len(self._projection)), dtype=np.float32)
        height = max(1024, _LOGIT_BLOCK // states.shape[1])
        for start in range(0, len(self._projection), height):
            logits = self._projection[start : start + height] @ states
            for i, (a, b) in enumerate(pairwise(bounds)):
                _max_of_columns(logits[:, a:b], out=pooled[i, start : start + height])
        pooled += self._bias
        return pooled

    def _head(self, states: Array) -> Array:
        if not self._mlm:
            return self.body.layer_norm(states, "ln", self._head_eps)
        states = gelu_inplace(self.body.linear(states, "mlm.dense"))
        return self.body.layer_norm(states, "mlm.LayerNorm", self._head_eps)


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
