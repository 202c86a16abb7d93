"""What a search costs: texts that go through the encoder, and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sidr_rag.costs import Ledger, note_read
from sidr_rag.encoder import Encoder
from sidr_rag.encoder.config import Side
from sidr_rag.encoder.windows import TokenVectors
from sidr_rag.types import SparseVectors

T = TypeVar("T")


@dataclass(frozen=True)
class Seconds:
    """Time passed, and time of all threads of the process together."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)


@dataclass(frozen=True)
class Cost:
    """What answering all queries once takes.

    Attributes:
        queries: texts of queries that are encoded.
        passages: texts of passages that are encoded, every candidate of every query counted, as in the paper's table of
            costs; an embedding that is remembered saves its second reading.
        share: `queries + passages` as a part of the corpus.
        encoded: passages that were encoded in this run: the distinct ones that nothing before had encoded.
        seconds: of searching, without encoding passages.
        encoding: of encoding those passages.
    """

    queries: int
    passages: int
    share: float
    encoded: int
    seconds: Seconds
    encoding: Seconds

    @property
    def texts(self) -> int:
        """Texts that are encoded: queries and passages."""
        return self.queries + self.passages


@dataclass(frozen=True)
class Reading:
    """What an encoder has done so far."""

    queries: int = 0
    passages: int = 0
    passage_seconds: Seconds = Seconds()


class MeteredEncoder:
    """An encoder that counts the texts it encodes and the time that passages take; bags of tokens are not counted.

    It stands wherever the encoder itself would.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.tokenizer = encoder.tokenizer
        self.config = encoder.config
        self.fingerprint = encoder.fingerprint
        self.reading = Reading()

    def encode_queries(
        self,
        texts: Sequence[str],
        *,
        representation: str = "theta",
        max_active_dims: int | None = None,
        tokens: bool = False,
    ) -> SparseVectors:
        """As `Encoder.encode_queries`."""
        kept = _kept(tokens=tokens)
        return self._metered(
            "query",
            lambda: self._encoder.encode_queries(
                texts, representation=representation, max_active_dims=max_active_dims, **kept
            ),
        )

    def encode_binary_queries(
        self, texts: Sequence[str], *, representation: str = "theta", max_active_dims: int | None = None
    ) -> SparseVectors:
        """As `Encoder.encode_binary_queries`."""
        return self._metered(
            "query",
            lambda: self._encoder.encode_binary_queries(
                texts, representation=representation, max_active_dims=max_active_dims
            ),
        )

    def encode_passages(
        self,
        texts: Sequence[str],
        *,
        representation: str = "theta",
        max_active_dims: int | None = None,
        tokens: bool = False,
    ) -> SparseVectors:
        """As `Encoder.encode_passages`."""
        kept = _kept(tokens=tokens)
        return self._metered(
            "passage",
            lambda: self._encoder.encode_passages(
                texts, representation=representation, max_active_dims=max_active_dims, **kept
            ),
        )

    def encode_dense(self, texts: Sequence[str], side: Side = "passage") -> NDArray[np.float32]:
        """As `Encoder.encode_dense`."""
        return self._metered(side, lambda: self._encoder.encode_dense(texts, side))

    def encode_tokens(self, texts: Sequence[str], side: Side = "passage") -> list[TokenVectors]:
        """As `Encoder.encode_tokens`."""
        return self._metered(side, lambda: self._encoder.encode_tokens(texts, side))

    def _metered(self, side: Side, call: Callable[[], T]) -> T:
        with Ledger().booking() as costs:
            vectors, seconds = clocked(call)
        note_read("query", costs.queries, costs.query_tokens)
        note_read("passage", costs.passages, costs.passage_tokens)
        r = self.reading
        self.reading = Reading(
            r.queries + costs.queries,
            r.passages + costs.passages,
            r.passage_seconds + seconds if costs.passages and side == "passage" else r.passage_seconds,
        )
        return vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


def clocked(call: Callable[[], T]) -> tuple[T, Seconds]:
    """The call's result and what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def _kept(*, tokens: bool) -> dict[str, bool]:
    # Stand-ins of tests know no tokens.
    return {"tokens": True} if tokens else {}
