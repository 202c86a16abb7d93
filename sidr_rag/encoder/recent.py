"""Vectors that came along with V_theta: all of them stand on one body, which need not run twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from sidr_rag.encoder.config import Side
from sidr_rag.fork_lock import ForkLock

T = TypeVar("T")


class RecentVectors(Generic[T]):
    """What the texts that were read last gave, each until it is taken. Threads may share it.

    Args:
        most: how many are kept; the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = ForkLock()
        self._vectors: dict[tuple[Side, bytes], T] = {}

    def put(self, side: Side, token_ids: Sequence[Sequence[int]], vectors: Iterable[T]) -> None:
        """Keep one for each text."""
        with self._lock:
            for ids, vector in zip(token_ids, vectors, strict=True):
                key = _key(side, ids)
                self._vectors.pop(key, None)  # to stand last
                self._vectors[key] = vector
            while len(self._vectors) > self._most:
                del self._vectors[next(iter(self._vectors))]

    def take(self, side: Side, token_ids: Sequence[Sequence[int]]) -> list[T | None]:
        """What each text gave, or None; they are kept no longer."""
        with self._lock:
            if not self._vectors:
                return [None] * len(token_ids)
            found = [(key := _key(side, ids), self._vectors.get(key)) for ids in token_ids]
            for key, _ in found:
                self._vectors.pop(key, None)
            return [vector for _, vector in found]

    def clear(self) -> None:
        """Keep none of them."""
        with self._lock:
            self._vectors.clear()


def _key(side: Side, ids: Sequence[int]) -> tuple[Side, bytes]:
    return side, np.asarray(ids, np.int32).tobytes()
