"""Texts through a model's tokenizer and backbone: what of a text is read, and the logits that come of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import note_read
from sidr_rag.encoder.backbones import Backbones, Body
from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.encoder.logits import BodyReading, pooled_logits, screened_logits
from sidr_rag.encoder.model_tokenizer import special_token_ids
from sidr_rag.encoder.recent import RecentVectors
from sidr_rag.encoder.settings import SPECIAL_TOKENS
from sidr_rag.encoder.windows import Item, TokenVectors, WindowMeans, WindowTokens, chunks, length_batches, windows

if TYPE_CHECKING:
    from sidr_rag.text.tokenizer import BagTokenizer

T = TypeVar("T")
Logits = tuple[NDArray[np.int32] | None, NDArray[np.float32]]

_TEXTS_AT_ONCE = 256
_SEQUENCES_AT_ONCE = 256
_RECENT = 4096  # 6 MB of vectors of 384 numbers
_RECENT_TOKENS = 256  # 50 MB of passages of 130 tokens
_SCREENED_SHARE = 8  # of the dimensions: with more of them active, screening saves nothing


class Reading:
    """How one encoder reads texts. Threads may share it.

    Args:
        config: the model's configuration.
        tokenizer: its tokenizer.
        backbones: what runs it.
        truncate: whether a text is cut where one window ends.

    Attributes:
        recent: vectors of the dense head that came along with V_theta.
        recent_tokens: vectors of tokens that did.
    """

    def __init__(self, config: ModelConfig, tokenizer: BagTokenizer, backbones: Backbones, *, truncate: bool) -> None:
        self._config, self._tokenizer, self._backbones, self._truncate = config, tokenizer, backbones, truncate
        self._first, self._last = special_token_ids(tokenizer, config)
        self.recent: RecentVectors[NDArray[np.float32]] = RecentVectors(_RECENT)
        self.recent_tokens: RecentVectors[TokenVectors] = RecentVectors(_RECENT_TOKENS)

    def token_ids(self, texts: Sequence[str], side: Side) -> list[Sequence[int]]:
        """Each text's token ids without the special ones, cut to one window if so wanted."""
        token_ids: list[Sequence[int]] = [self._tokenizer.sequence_ids(text) for text in texts]
        if not self._truncate:
            return token_ids
        size = self._config.max_length[side] - SPECIAL_TOKENS
        excess = [len(ids) - size for ids in token_ids if len(ids) > size]
        if excess:
            warnings.warn(
                f"truncate=True left out {sum(excess)} tokens of {len(excess)} texts longer than {size} tokens",
                stacklevel=5,
            )
        return [ids[:size] for ids in token_ids]

    def bag(self, ids: Sequence[int]) -> NDArray[np.int32]:
        """The distinct dimensions of token ids, ascending."""
        dims = self._tokenizer.vocabulary.token_to_dim[np.unique(np.asarray(ids, dtype=np.int64))]
        return np.sort(dims[dims >= 0]).astype(np.int32)

    def logits(
        self,
        token_ids: list[Sequence[int]],
        bags: list[NDArray[np.int32]],
        side: Side,
        k: int,
        *,
        tokens: bool,
        binary: bool,
    ) -> Iterator[Logits]:
        """Each text's pooled logits, the maximum over its windows: all of them, or those of some dimensions.

        Args:
            token_ids: of the texts.
            bags: their distinct dimensions.
            side: "query" or "passage".
            k: how many of the greatest logits are wanted.
            tokens: whether the vectors of tokens are kept for `read`, beside those of the dense head.
            binary: whether the last layers are those of binary beta's queries; nothing is kept then.
        """
        items, n_tokens = self._windows(token_ids, side)
        if not items:
            return iter(())
        backbone = self._backbones.get(side, n_tokens, binary=binary)
        n, vocabulary = len(token_ids), self._tokenizer.vocabulary
        kept = WindowTokens(n, vocabulary.token_to_dim)
        body = None if binary else BodyReading(WindowMeans(n), kept if tokens else None)
        batches = length_batches(items, backbone.batch_tokens, _SEQUENCES_AT_ONCE)
        if backbone.screens and k * _SCREENED_SHARE <= vocabulary.dim:
            found: Iterator[Logits] = screened_logits(backbone, batches, bags, k, body)
        else:
            found = pooled_logits(backbone, batches, n, vocabulary.dim, body)
        if body is not None and self._config.dense is not None:
            self.recent.put(side, token_ids, body.means.vectors(self._config.dense))
            if tokens:
                self.recent_tokens.put(side, token_ids, kept.vectors())
        return found

    def read(
        self,
        recent: RecentVectors[T],
        texts: Sequence[str],
        side: Side,
        read: Callable[[Sequence[Item], int, Body], list[T]],
    ) -> list[T]:
        """What the body makes of each text; one that came along with V_theta is not read again."""
        every: list[T] = []
        for part in chunks(texts, _TEXTS_AT_ONCE):
            token_ids = self.token_ids(part, side)
            found = recent.take(side, token_ids)
            missing = [i for i, vector in enumerate(found) if vector is None]
            if missing:
                items, n_tokens = self._windows([token_ids[i] for i in missing], side)
                fresh = read(items, len(missing), self._backbones.get_body(side, n_tokens))
                for i, vector in zip(missing, fresh, strict=True):
                    found[i] = vector
            every += [vector for vector in found if vector is not None]
        return every

    def _windows(self, token_ids: list[Sequence[int]], side: Side) -> tuple[list[tuple[int, Sequence[int]]], int]:
        """Every text's windows with special tokens, each with its text's number; and how many tokens there are."""
        size = self._config.max_length[side] - SPECIAL_TOKENS
        n_tokens = sum(map(len, token_ids))
        note_read(side, len(token_ids), n_tokens)
        items: list[tuple[int, Sequence[int]]] = [
            (i, [self._first, *window, self._last]) for i, ids in enumerate(token_ids) for window in windows(ids, size)
        ]
        return items, n_tokens
