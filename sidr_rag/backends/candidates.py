"""Exact search on an engine: its best candidates, as many as the order of the canonical scores needs.

An engine adds float32 numbers in an order of its own, and its values carry a length factor for an average that has
moved since. So its scores only bound ours: candidates are scored again by the library's own kernel, and the search
ends when no record that the engine has not shown can still be among the best. Ties and filters are settled on our
side; a filter that the engine understands spares candidates, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sidr_rag.backends.ledger import Sums
from sidr_rag.backends.protocol import LAST_PART, Candidate, PartRange, Query, Record
from sidr_rag.backends.records import index_of, queries_of
from sidr_rag.backends.remote_store import RemoteStore
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.search.filters import Filter
from sidr_rag.search.searcher import SeqHits, search_index
from sidr_rag.search.weighting import Weighting
from sidr_rag.types import SparseVectors

_MORE = 16
_GROWTH = 4
_EVERY = PartRange(0, LAST_PART)
_UNIT = 2.0**-24  # half the distance from 1 to the next float32


@dataclass
class Found:
    """Candidates of some queries: every record that can be among their best k, and perhaps more.

    Attributes:
        records: by seq, ascending.
        index: the same as an index state with the corpus's statistics.
    """

    records: list[Record]
    index: BotIndex


@dataclass
class _Search:
    """One query's progress: ranges of parts that are not finished, each with the number of candidates to ask for."""

    query: Query
    slack: float
    open: dict[PartRange, int] = field(default_factory=dict)
    floors: dict[PartRange, float] = field(default_factory=dict)

    def took(self, parts: PartRange, limit: int, candidates: Sequence[Candidate], most: int) -> None:
        """Note an answer: what it leaves unseen scores at most `floors[parts]`, or nothing is left."""
        del self.open[parts]
        self.floors.pop(parts, None)
        if len(candidates) < limit:
            return
        self.floors[parts] = min(c.product for c in candidates) * self.slack
        if limit < most:
            self.open[parts] = min(most, limit * _GROWTH)
            return
        # The engine gives no more at once: divide the range, so that each part has fewer.
        if parts.first == parts.last:
            return
        middle = min(int(np.median([c.record.part for c in candidates])), parts.last - 1)
        floor = self.floors.pop(parts)
        for half in (PartRange(parts.first, middle), PartRange(middle + 1, parts.last)):
            self.open[half] = most
            self.floors[half] = floor

    def close_below(self, least: float) -> None:
        """Finish the ranges in which nothing unseen can reach a score."""
        for parts, floor in list(self.floors.items()):
            if floor < least:
                self.open.pop(parts, None)
                del self.floors[parts]


def find_candidates(
    store: RemoteStore,
    sums: Sums,
    vectors: SparseVectors,
    weighting: Weighting,
    k: int,
    condition: Filter | None,
    *,
    first: int | None = None,
) -> Found:
    """Every record that is among the k best of a query.

    Args:
        store: the collection.
        sums: the corpus's statistics.
        vectors: w(t) of the queries, finite and non-negative.
        weighting: levels, gains and the length factor.
        k: how many of each query.
        condition: only records that match.
        first: how many candidates to ask for at first; None for some more than k.
    """
    thresholds, dim = store.settings.thresholds, store.settings.dim
    statistics = (sums.df, sums.passages, sums.length)
    records: dict[str, Record] = {}
    index = index_of([], thresholds, dim, statistics)
    scale = store.scale()
    if not k or scale is None:
        return Found([], index)
    over = scale.most_over(weighting, sums.length / max(1, sums.passages), sums.longest)
    most = store.backend.most_candidates
    limit = min(most, first or k + _MORE)
    searches = {}
    for i, query in enumerate(queries_of(vectors, weighting, thresholds)):
        if len(query.dims):
            # Non-negative terms: whatever the order of the sum, its relative error is within n roundings.
            slack = over * (1.0 + 4.0 * _UNIT * (len(query.dims) + 8))
            searches[i] = _Search(query, slack, {_EVERY: limit})
    while searches:
        _ask(store, searches, condition, records)
        index = index_of(_in_order(records), thresholds, dim, statistics)
        order = list(searches)
        hits = best_of(index, _rows_of(vectors, order), weighting, k, condition)
        for i, (_, scores) in zip(order, hits, strict=True):
            if len(scores) == k:
                searches[i].close_below(float(scores[-1]))
            if not searches[i].open:
                del searches[i]
    return Found(_in_order(records), index)


def best_of(
    index: BotIndex, vectors: SparseVectors, weighting: Weighting, k: int, condition: Filter | None
) -> list[SeqHits]:
    """The library's own search of an index state."""

    def allowed(view: SegmentView) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        return None if condition is None else view.segment.columns.mask(condition)

    return search_index(index, vectors, weighting, k, allowed=allowed)


def _ask(
    store: RemoteStore, searches: dict[int, _Search], condition: Filter | None, records: dict[str, Record]
) -> None:
    """One round: every unfinished range of every query, those of one range and number together."""
    asked: dict[tuple[PartRange, int], list[int]] = {}
    for i, search in searches.items():
        for parts, limit in search.open.items():
            asked.setdefault((parts, limit), []).append(i)
    for (parts, limit), members in asked.items():
        queries = [searches[i].query for i in members]
        found = store.backend.search(queries, limit, condition, None if parts == _EVERY else parts)
        for i, candidates in zip(members, found, strict=True):
            searches[i].took(parts, limit, candidates, store.backend.most_candidates)
            for record, _ in candidates:
                known = records.get(record.key)
                if known is None or known.row.seq < record.row.seq:  # replaced between two rounds: the new one counts
                    records[record.key] = record


def _in_order(records: dict[str, Record]) -> list[Record]:
    ordered = sorted(records.values(), key=lambda record: (record.row.seq, record.key))
    for i in range(1, len(ordered)):
        least = ordered[i - 1].row.seq + 1
        if ordered[i].row.seq < least:  # two writers in one microsecond
            ordered[i] = replace(ordered[i], row=ordered[i].row._replace(seq=least))
    return ordered


def _rows_of(vectors: SparseVectors, rows: list[int]) -> SparseVectors:
    chosen = [vectors.row(i) for i in rows]
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(dims) for dims, _ in chosen], out=indptr[1:])
    return SparseVectors(
        indptr, np.concatenate([d for d, _ in chosen]), np.concatenate([w for _, w in chosen]), vectors.dim
    )
