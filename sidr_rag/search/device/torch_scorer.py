"""Approximate sums with torch's own operations: any device, no compiler."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sidr_rag.search.device.part import Part, PartLevel, unsigned
from sidr_rag.search.device.tables import Tables

BLOCK = 128  # rows whose maximum is kept
_CHUNK = 512 * BLOCK


class TorchScorer:
    """See `Scorer`; holds no bits, and sums bags by `embedding_bag`."""

    table_type = torch.float32
    frequent_share = 1.0
    most_frequent = 0

    def columns(self, n_queries: int) -> int:
        """Table columns for a batch."""
        return n_queries

    def block_maxima(self, part: Part, tables: Tables, factors: Tensor | None, allowed: Tensor | None) -> Tensor:
        """See `Scorer`."""
        n_blocks = -(-part.n_rows // BLOCK)
        maxima = torch.zeros((tables.n_queries, n_blocks), dtype=torch.float32, device=part.lengths.device)
        for first in range(0, part.n_rows, _CHUNK):
            last = min(first + _CHUNK, part.n_rows)
            sums = torch.zeros((last - first, tables.columns), dtype=torch.float32, device=part.lengths.device)
            for level in part.levels:
                table = tables.by_threshold.get(level.threshold)
                if table is not None:
                    sums += _bag_sums(level, table, first, last)
            if factors is not None:
                sums *= factors[first:last, None]
            if allowed is not None:
                sums *= allowed[first:last, None]
            blocks = functional.pad(sums, (0, 0, 0, -len(sums) % BLOCK)).view(-1, BLOCK, tables.columns)
            maxima[:, first // BLOCK : first // BLOCK + len(blocks)] = blocks.amax(dim=1).T
        return maxima

    def block_sums(
        self,
        part: Part,
        tables: Tables,
        factors: Tensor | None,
        allowed: Tensor | None,
        queries: Tensor,
        blocks: Tensor,
    ) -> Tensor:
        """See `Scorer`."""
        rows = blocks[:, None] * BLOCK + torch.arange(BLOCK, device=blocks.device)
        inside = rows < part.n_rows
        rows = rows.clamp(max=part.n_rows - 1)
        flat = rows.reshape(-1)
        sums = torch.zeros(len(flat), dtype=torch.float32, device=blocks.device)
        for level in part.levels:
            table = tables.by_threshold.get(level.threshold)
            if table is None:
                continue
            starts = level.starts[flat].long()
            lens = level.starts[flat + 1].long() - starts
            at = torch.repeat_interleave(torch.arange(len(flat), device=blocks.device), lens)
            before = lens.cumsum(0) - lens
            entries = torch.arange(len(at), device=blocks.device) - before[at] + starts[at]
            query = queries[at // BLOCK]
            sums.index_add_(0, at, table[unsigned(level.dims[entries]).long(), query].float())
        if factors is not None:
            sums *= factors[flat]
        if allowed is not None:
            sums *= allowed[flat]
        return sums.view(-1, BLOCK) * inside


def _bag_sums(level: PartLevel, table: Tensor, first: int, last: int) -> Tensor:
    starts = level.starts[first : last + 1]
    entries = unsigned(level.dims[int(starts[0]) : int(starts[-1])])
    return functional.embedding_bag(entries, table, starts - starts[0], mode="sum", include_last_offset=True)
