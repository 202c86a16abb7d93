"""Texts to what the encoder reads and what the bags hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.model_tokenizer import special_token_ids
from sidr_rag.text.tokenizer import BagTokenizer


class TextReader:
    """Token ids and own dimensions of texts, cut at the model's lengths (bags are of the whole text)."""

    def __init__(self, tokenizer: BagTokenizer, config: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._first, self._last = special_token_ids(tokenizer, config)
        self._length = config.max_length
        self._dim_of = tokenizer.vocabulary.token_to_dim
        self.token_ids: NDArray[np.int32] = tokenizer.vocabulary.dim_to_token

    def query(self, text: str) -> list[int]:
        """Token ids of a query, special ones included."""
        return self._cut(self._tokenizer.sequence_ids(text), self._length.query)

    def passage(self, text: str) -> list[int]:
        """Token ids of a passage, special ones included."""
        return self._cut(self._tokenizer.sequence_ids(text), self._length.passage)

    def token_dims(self, text: str) -> NDArray[np.int32]:
        """The dimension of each token of a query in turn, without special ones; -1 for a token that is none."""
        dims: NDArray[np.int32] = self._dim_of[np.asarray(self.query(text)[1:-1], dtype=np.int64)]
        return dims

    def own_dims(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """The dimensions of each text's own tokens, ascending."""
        own = []
        for text in texts:
            dims = self._dim_of[np.unique(np.asarray(self._tokenizer.sequence_ids(text), dtype=np.int64))]
            own.append(np.sort(dims[dims >= 0]).astype(np.int64))
        return own

    def _cut(self, ids: Sequence[int], length: int) -> list[int]:
        return [self._first, *ids[: length - 2], self._last]
