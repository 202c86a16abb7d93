"""Stored passages chosen by their metadata alone: oldest first, nothing scored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.inputs import as_count
from sidr_rag.search.filters import Filter, parse_filter
from sidr_rag.types import Passage

if TYPE_CHECKING:
    from sidr_rag.engine import SiDR
    from sidr_rag.index.bot_index import BotIndex

_BLOCK = 1000


def list_passages(
    sidr: SiDR, *, filter: Mapping[str, Any] | None = None, limit: int | None = None, without: Collection[str] = ()
) -> list[Passage]:
    """The passages that match a filter, oldest first.

    Args:
        sidr: the store.
        filter: on metadata; see `sidr_rag.search.filters`.
        limit: at most so many; None for all.
        without: ids to leave out.

    Raises:
        InvalidInputError, InvalidTypeError: if the filter or the limit cannot be used.
    """
    own = getattr(sidr, "list_passages", None)  # of a collection that is not in a folder
    if own is not None:
        passages: list[Passage] = own(filter=filter, limit=limit, without=without)
        return passages
    condition = parse_filter(filter)
    wanted = None if limit is None else as_count("limit", limit)
    found: list[Passage] = []
    if wanted == 0:
        return found
    seqs = matching_seqs(sidr._store.current(), condition).tolist()
    for start in range(0, len(seqs), _BLOCK):
        rows = sidr._store.fetch(seqs[start : start + _BLOCK])
        for seq in sorted(rows):
            if rows[seq].id not in without:
                found.append(rows[seq].passage())
                if len(found) == wanted:
                    return found
    return found


def matching_seqs(index: BotIndex, condition: Filter | None) -> NDArray[np.uint64]:
    """Seqs of the living passages that match, ascending: u64[n]."""
    parts = []
    for view in index.views:
        keep = np.ones(view.segment.n_rows, dtype=np.bool_) if view.live is None else view.live
        if condition is not None:
            keep = keep & view.segment.columns.mask(condition)
        parts.append(view.segment.seqs[keep])
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def text_values(index: BotIndex, key: str) -> set[str]:
    """The strings that living passages have under a metadata key."""
    values: set[str] = set()
    for view in index.views:
        column = view.segment.columns.by_key.get(key)
        if column is not None:
            codes = np.unique(column.codes if view.live is None else column.codes[view.live])
            values.update(v for c in codes.tolist() if c and isinstance(v := column.values[c - 1], str))
    return values
