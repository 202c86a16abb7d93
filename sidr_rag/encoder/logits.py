"""Pooled logits of texts that are read in windows: the maximum over a text's windows, dimension by dimension."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.sparsify import Row, merged_rows
from sidr_rag.encoder.windows import Item, WindowMeans

if TYPE_CHECKING:
    from sidr_rag.encoder.backbones import Backbone


def pooled_logits(
    backbone: Backbone, batches: Iterator[list[Item]], n: int, dim: int, means: WindowMeans
) -> Iterator[tuple[None, NDArray[np.float32]]]:
    """All logits f32[dim] of each of n texts; `means` takes what the dense head makes of their windows."""
    pooled = np.full((n, dim), -np.inf, dtype=np.float32)
    for batch in batches:
        logits = backbone.pooled_logits([ids for _, ids in batch], partial(means.add, batch))
        for row, (i, _) in zip(logits, batch, strict=True):
            np.maximum(pooled[i], row, out=pooled[i])
    return ((None, row) for row in pooled)


def screened_logits(
    backbone: Backbone, batches: Iterator[list[Item]], bags: list[NDArray[np.int32]], k: int, means: WindowMeans
) -> Iterator[Row]:
    """Logits of what can be among a text's k greatest: a greatest one is a greatest one of some window too."""
    found: list[list[Row]] = [[] for _ in bags]
    for batch in batches:
        own = [bags[i] for i, _ in batch]
        rows = backbone.best_logits([ids for _, ids in batch], own, k, partial(means.add, batch))
        for row, (i, _) in zip(rows, batch, strict=True):
            found[i].append(row)
    return (merged_rows(rows) for rows in found)
