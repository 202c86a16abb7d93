"""Text to V_theta: tokenizer, backbone and sparsification, tied together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.backbones import Backbones
from sidr_rag.encoder.checkpoint import checkpoint_digest
from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.model_tokenizer import load_tokenizer
from sidr_rag.encoder.reading import Reading
from sidr_rag.encoder.resolve import resolve_model
from sidr_rag.encoder.settings import (
    SPECIAL_TOKENS,
    EncoderSettings,
    check_choice,
    check_texts,
    checked_count,
    overridden,
)
from sidr_rag.encoder.sparsify import (
    REPRESENTATIONS,
    SPARSIFICATIONS,
    Representation,
    Row,
    Sparsification,
    bag_row,
    sparse_row,
)
from sidr_rag.encoder.windows import (
    TokenVectors,
    chunks,
    dense_vectors,
    token_vectors,
)
from sidr_rag.errors import InvalidInputError
from sidr_rag.types import SparseVectors

if TYPE_CHECKING:
    from sidr_rag.text.tokenizer import BagTokenizer

_TEXTS_AT_ONCE = 256


class Encoder:
    """V_theta of queries and passages: S_topk(max-pool(activation(head(BERT(x)) E^T))) (eq. vdr).

    Threads may share it; pickling keeps the settings and loads the weights anew. Made by `load_encoder`.

    Attributes:
        config: the model's configuration, with `max_length` and `activation` as they were asked for.
        tokenizer: its tokenizer, which also defines the vocabulary space.
        fingerprint: changes when the weights, the tokenizer or a setting that decides a vector's values changes; not
            with device, dtype or backend.
    """

    config: ModelConfig
    tokenizer: BagTokenizer
    fingerprint: str

    def __init__(self, settings: EncoderSettings, folder: Path | None = None) -> None:
        check_choice("sparsify", settings.sparsify, SPARSIFICATIONS)
        if folder is None:
            folder = resolve_model(settings.model)
        config = load_config(folder, name=None if Path(settings.model).is_dir() else settings.model)
        self.config = overridden(config, settings)
        most = self.config.max_length.passage - SPECIAL_TOKENS if settings.truncate else None
        self.tokenizer = load_tokenizer(folder, self.config, settings.normalization, most)
        self._settings = settings
        self._backbones = Backbones(
            folder,
            self.config,
            self.tokenizer.vocabulary.dim_to_token,
            device=settings.device,
            dtype=settings.dtype,
            backend=settings.backend,
        )
        self._reading = Reading(self.config, self.tokenizer, self._backbones, truncate=settings.truncate)
        self.fingerprint = self._fingerprint(folder)

    def __reduce__(self) -> tuple[type[Encoder], tuple[EncoderSettings]]:
        return type(self), (self._settings,)

    def __repr__(self) -> str:
        return f"Encoder({self.config.name!r}, dim={self.dim}, fingerprint={self.fingerprint!r})"

    @property
    def dim(self) -> int:
        """Dimensions of the vocabulary space."""
        return self.tokenizer.vocabulary.dim

    def encode_queries(
        self,
        texts: Sequence[str],
        *,
        representation: str = "theta",
        max_active_dims: int | None = None,
        tokens: bool = False,
    ) -> SparseVectors:
        """Encode queries; see `encode_passages`."""
        return self._encode(texts, "query", representation, max_active_dims, tokens=tokens)

    def encode_binary_queries(
        self, texts: Sequence[str], *, representation: str = "theta", max_active_dims: int | None = None
    ) -> SparseVectors:
        """Encode queries for binary beta search, whose scores are inner products with bags of tokens.

        As `encode_queries`, but by the model's `binary_layers`, where it has such layers; and None takes its
        `binary_active_dims`, where it has such a number.
        """
        k = self.config.binary_active_dims if max_active_dims is None else max_active_dims
        return self._encode(texts, "query", representation, k, binary=self.config.binary_layers > 0)

    def encode_passages(
        self,
        texts: Sequence[str],
        *,
        representation: str = "theta",
        max_active_dims: int | None = None,
        tokens: bool = False,
    ) -> SparseVectors:
        """Encode passages.

        Args:
            texts: any lengths; a text with no token of the vocabulary gets an empty row.
            representation: "theta" (V_theta), "lex" (V_theta on the text's own tokens), "bin" (V_theta binarized) or
                "bot" (bag of tokens; needs no weights).
            max_active_dims: k of the top-k; None takes the model's for this side, `dim` keeps the whole vocabulary.
            tokens: whether `encode_tokens` is to find these texts read, which `encode_dense` does in any case.

        Returns:
            one row per text.

        Raises:
            InvalidInputError: if an argument has no usable value, or the weights are damaged.
            InvalidTypeError: if `texts` is no sequence of strings or `max_active_dims` no integer.
        """
        return self._encode(texts, "passage", representation, max_active_dims, tokens=tokens)

    def own_dims(self, texts: Sequence[str], side: Side = "passage") -> list[NDArray[np.int32]]:
        """The dimensions of each text's own tokens, ascending: its bag, which `truncate=True` cuts like the text."""
        if self._settings.truncate:
            return [self._reading.bag(ids) for ids in self._reading.token_ids(texts, side)]
        counts = self.tokenizer.counts(texts)
        return [counts.dims[a:b].astype(np.int32) for a, b in zip(counts.indptr, counts.indptr[1:], strict=False)]

    def _encode(
        self,
        texts: Sequence[str],
        side: Side,
        representation: str,
        max_active_dims: int | None,
        *,
        tokens: bool = False,
        binary: bool = False,
    ) -> SparseVectors:
        check_texts(texts)
        check_choice("representation", representation, REPRESENTATIONS)
        k = checked_count("max_active_dims", max_active_dims, self.config.max_active_dims[side])
        rows: list[Row] = []
        for part in chunks(texts, _TEXTS_AT_ONCE):
            if representation == "bot":
                rows += [bag_row(own) for own in self.own_dims(part, side)]
            else:
                wanted = cast(Representation, representation)
                rows += self._encode_part(part, side, wanted, k, tokens=tokens, binary=binary)
        return SparseVectors.from_rows(rows, self.dim)

    def encode_dense(self, texts: Sequence[str], side: Side = "passage") -> NDArray[np.float32]:
        """Vectors of the model's dense head, if it has one (`config.dense`).

        A text whose V_theta was made just before is not read again: the vector came along with it.

        Args:
            texts: any lengths; longer ones are read in windows, and the windows' vectors averaged by their lengths.
            side: "query" or "passage".

        Returns:
            f32[len(texts), hidden], of length 1 where the head normalizes.

        Raises:
            InvalidInputError: if the model has no dense head.
            InvalidTypeError: if `texts` is no sequence of strings.
        """
        check_texts(texts)
        if self.config.dense is None:
            raise InvalidInputError(f"model {self.config.name!r} has no dense head; use its V_theta, or a BiEncoder")
        head = self.config.dense
        found = self._reading.read(
            self._reading.recent, texts, side, lambda items, n, body: list(dense_vectors(items, n, body, head))
        )
        return np.stack(found) if found else np.empty((0, self.dense_width), np.float32)

    def encode_tokens(self, texts: Sequence[str], side: Side = "passage") -> list[TokenVectors]:
        """One vector for each token: the body's last hidden states, which `sidr_rag.rerank.maxsim` compares.

        Args:
            texts: any lengths; longer ones are read in windows, whose tokens follow each other.
            side: "query" or "passage".

        Returns:
            for each text its tokens' dimensions and vectors f32[tokens, hidden], without the special ones.

        Raises:
            InvalidInputError: if the model is not a BERT that the library runs itself.
            InvalidTypeError: if `texts` is no sequence of strings.
        """
        check_texts(texts)
        dims = self.tokenizer.vocabulary.token_to_dim
        return self._reading.read(
            self._reading.recent_tokens, texts, side, lambda items, n, body: token_vectors(items, n, body, dims)
        )

    def forget_recent(self) -> None:
        """Drop the vectors that came along with V_theta and were not asked for: the next costs a reading."""
        self._reading.recent.clear()
        self._reading.recent_tokens.clear()

    @property
    def dense_width(self) -> int:
        """Numbers in a vector of the dense head; 0 where there is none."""
        return self.config.bert.hidden_size if self.config.dense and self.config.bert else 0

    @property
    def token_width(self) -> int:
        """Numbers in a token's vector; 0 where there are none, see `encode_tokens`."""
        return self.config.bert.hidden_size if self.config.bert else 0

    @property
    def dense_fingerprint(self) -> str:
        """Of the dense head's vectors; changes as `fingerprint` does, and with the head."""
        return hashlib.sha256(f"{self.fingerprint}{self.config.dense}".encode()).hexdigest()[:16]

    def _encode_part(
        self, texts: Sequence[str], side: Side, representation: Representation, k: int, *, tokens: bool, binary: bool
    ) -> list[Row]:
        token_ids = self._reading.token_ids(texts, side)
        bags = [self._reading.bag(ids) for ids in token_ids]
        filled = [i for i, bag in enumerate(bags) if len(bag)]
        own_alone = representation == "lex" or self._settings.sparsify == "own"
        read = [token_ids[i] for i in filled]
        logits = self._reading.logits(
            read, [bags[i] for i in filled], side, 0 if own_alone else k, tokens=tokens, binary=binary
        )
        rows = [bag_row(bag) for bag in bags]
        for (dims, values), i in zip(logits, filled, strict=True):
            rows[i] = sparse_row(
                values,
                bags[i],
                activation=self.config.activation,
                representation=representation,
                sparsification=cast(Sparsification, self._settings.sparsify),
                max_active_dims=k,
                dims=dims,
            )
        return rows

    def _fingerprint(self, folder: Path) -> str:
        described = [
            checkpoint_digest(folder),
            self.config.identity(),
            self.tokenizer.fingerprint,
            self._settings.normalization,
            self._settings.sparsify,
            self._settings.truncate,
        ]
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
