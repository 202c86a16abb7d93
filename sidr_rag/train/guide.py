"""A dense teacher that reads the texts of each batch as they come."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.config import Side
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import DenseTeacher
from sidr_rag.train.teachers import DenseModel, cut
from sidr_rag.train.texts import TextReader

_AT_ONCE = 128


class Guide:
    """A bi-encoder's vectors of examples and passages; each text is read when it is first asked for, then remembered.

    Args:
        teacher: the model and how it makes a vector.
        pool: examples and passages.
        reader: texts to tokens; the teacher must share the vocabulary.
        device: where the model runs; None for the CPU.
    """

    def __init__(
        self, teacher: DenseTeacher, pool: Pool, reader: TextReader, device: torch.device | None = None
    ) -> None:
        self._length = teacher.max_length
        self._pool, self._reader = pool, reader
        self._model = DenseModel(teacher.model, pooling=teacher.pooling, device=device)
        self._known: dict[Side, dict[int, NDArray[np.float16]]] = {"query": {}, "passage": {}}

    def vectors(self, numbers: NDArray[np.int64], side: Side) -> NDArray[np.float32]:
        """The vectors of examples ("query") or passages, of length 1: f32[n, width]."""
        known = self._known[side]
        new = [int(i) for i in np.unique(numbers) if int(i) not in known]
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            sequences = [cut(self._tokens(i, side), self._length) for i in part]
            known.update(zip(part, self._model.vectors(sequences).astype(np.float16), strict=True))
        return np.stack([known[int(i)] for i in numbers]).astype(np.float32)

    def columns(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines f32[n, m] of every example with every one of the passages."""
        product: NDArray[np.float32] = self.vectors(examples, "query") @ self.vectors(pids, "passage").T
        return product

    def _tokens(self, number: int, side: Side) -> list[int]:
        if side == "query":
            return self._reader.query(self._pool.examples[number].query)
        return self._reader.passage(self._pool.contents[number])
