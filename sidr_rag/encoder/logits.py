"""Pooled logits of texts that are read in windows: the maximum over a text's windows, dimension by dimension."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.sparsify import Row, merged_rows
from sidr_rag.encoder.windows import Item, WindowMeans, WindowTokens

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Backbone, Summarized


@dataclass(frozen=True)
class BodyReading:
    """What a body makes of texts, beside their logits.

    Attributes:
        means: takes what the dense head is made of.
        tokens: takes the vectors of tokens; None where nobody wants them.
    """

    means: WindowMeans
    tokens: WindowTokens | None = None

    def of(self, batch: list[Item]) -> Summarized:
        """What a backbone is to tell about a batch."""

        def take(summaries: NDArray[np.float32], states: Callable[[], list[NDArray[np.float32]]]) -> None:
            self.means.add(batch, summaries)
            if self.tokens is not None:
                self.tokens.add(batch, states())

        return take


def _told(body: BodyReading | None, batch: list[Item]) -> Summarized | None:
    return None if body is None else body.of(batch)


def pooled_logits(
    backbone: Backbone, batches: Iterator[list[Item]], n: int, dim: int, body: BodyReading | None
) -> Iterator[tuple[None, NDArray[np.float32]]]:
    """All logits f32[dim] of each of n texts."""
    pooled = np.full((n, dim), -np.inf, dtype=np.float32)
    for batch in batches:
        logits = backbone.pooled_logits([ids for _, ids in batch], _told(body, batch))
        for row, (i, _) in zip(logits, batch, strict=True):
            np.maximum(pooled[i], row, out=pooled[i])
    return ((None, row) for row in pooled)


def screened_logits(
    backbone: Backbone, batches: Iterator[list[Item]], bags: list[NDArray[np.int32]], k: int, body: BodyReading | None
) -> Iterator[Row]:
    """Logits of what can be among a text's k greatest: a greatest one is a greatest one of some window too."""
    found: list[list[Row]] = [[] for _ in bags]
    for batch in batches:
        own = [bags[i] for i, _ in batch]
        rows = backbone.best_logits([ids for _, ids in batch], own, k, _told(body, batch))
        for row, (i, _) in zip(rows, batch, strict=True):
            found[i].append(row)
    return (merged_rows(rows) for rows in found)
