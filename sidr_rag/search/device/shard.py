"""The part of an index that one device searches: what it keeps there, what is streamed to it, and its candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.index.bot_index import SegmentView
from sidr_rag.search.device.bounds import Bound
from sidr_rag.search.device.candidates import Candidates
from sidr_rag.search.device.part import Part
from sidr_rag.search.device.scorer import Scorer
from sidr_rag.search.device.tables import Tables
from sidr_rag.search.device.torch_scorer import BLOCK

MOST_ROWS = 1 << 22  # of a part: its rows' maxima and its addresses stay small
_MOST_PARTS = 16
_PAIRS = 1 << 14  # (query, block) pairs whose sums are held at once


@dataclass(frozen=True)
class Rules:
    """How sums become scores.

    Attributes:
        k: how many are wanted.
        most: stop when a query has more candidates than this.
        exponent, slope, average: of s(d); exponent 0 leaves it out.
        largest_factor: an upper bound of s(d).
    """

    k: int
    most: int
    exponent: float
    slope: float
    average: float
    largest_factor: float


class TooManyError(Exception):
    """Too many passages are within the error of the k-th best."""


class DeviceShard:
    """Segments on one device.

    Args:
        device: where they are searched.
        scorer: how.
        memory: bytes of the index that may stay on the device; the rest stays in main memory and is streamed.
    """

    def __init__(self, device: torch.device, scorer: Scorer, memory: int) -> None:
        self.device = device
        self._scorer = scorer
        self._memory = memory
        self._parts: list[Part] = []

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(part.nbytes for part in self._parts if part.lengths.device == self.device)

    def hold(self, views: Sequence[SegmentView]) -> None:
        """Take over these segments: what is there stays, only new ones are copied."""
        position = {view.name: i for i, view in enumerate(views)}
        kept: dict[int, Part] = {}
        for old in self._parts:
            first = position.get(old.names[0], len(views))
            if tuple(view.name for view in views[first : first + len(old.names)]) == old.names:
                kept[first] = old
        if len(kept) >= _MOST_PARTS:
            kept = {}
        used = sum(part.nbytes for part in kept.values() if part.lengths.device == self.device)
        self._parts = []
        i = 0
        while i < len(views):
            part = kept.get(i)
            if part is None:
                end, rows = i + 1, views[i].segment.n_rows
                while end < len(views) and end not in kept and rows + views[end].segment.n_rows <= MOST_ROWS:
                    rows += views[end].segment.n_rows
                    end += 1
                part = self._placed(Part.of(views[i:end]), self._memory - used)
                used += part.nbytes if part.lengths.device == self.device else 0
            self._parts.append(part)
            i += len(part.names)

    def candidates(
        self,
        tables: Tables,
        rules: Rules,
        positions: dict[str, int],
        allowed: Sequence[NDArray[np.bool_] | None],
    ) -> Candidates:
        """Every row that can be among the k best of a query, and a few more.

        Args:
            tables: on this device.
            rules: see `Rules`.
            positions: position in the index of each segment.
            allowed: for each segment of the index, bool[n_rows], or None for all.

        Raises:
            TooManyError: see `Rules.most`.
        """
        n = tables.n_queries
        reached = torch.zeros((n, 0), dtype=torch.float32, device=self.device)
        found: list[Candidates] = []
        counts = np.zeros(n, dtype=np.int64)
        for part in self._on_device():
            factors = None
            if rules.exponent:
                factors = (1.0 - rules.slope + rules.slope * (part.lengths / rules.average)) ** -rules.exponent
            mask = self._mask(part, [allowed[positions[name]] for name in part.names])
            terms = min(tables.most_terms, sum(v.longest for v in part.levels if v.threshold in tables.by_threshold))
            bound = Bound.of(self._scorer.table_type, terms, rules.largest_factor)
            maxima = self._scorer.block_maxima(part, tables, factors, mask)
            best = maxima.topk(min(rules.k, maxima.shape[1]), dim=1).values
            reached = torch.cat([reached, best], dim=1)
            reached = reached.topk(min(rules.k, reached.shape[1]), dim=1).values
            least = self._least(reached, rules.k, bound)
            queries, blocks = torch.nonzero((maxima >= least[:, None]) & (maxima > 0), as_tuple=True)
            for first in range(0, len(queries), _PAIRS):
                q, b = queries[first : first + _PAIRS], blocks[first : first + _PAIRS]
                sums = self._scorer.block_sums(part, tables, factors, mask, q, b)
                pair, inside = torch.nonzero((sums >= least[q][:, None]) & (sums > 0), as_tuple=True)
                chosen = sums[pair, inside].cpu().numpy()
                asked = q[pair].cpu().numpy()
                rows = (b[pair] * BLOCK + inside).cpu().numpy()
                counts += np.bincount(asked, minlength=n)
                if len(counts) and counts.max() > rules.most:
                    raise TooManyError
                at = np.searchsorted(np.array(part.offsets), rows, side="right") - 1
                views = np.array([positions[name] for name in part.names], dtype=np.int64)[at]
                found.append(Candidates(asked, views, rows - np.array(part.offsets)[at], chosen))
        return Candidates.joined(found)

    def _least(self, reached: Tensor, k: int, bound: Bound) -> Tensor:
        if reached.shape[1] < k:
            return torch.zeros(len(reached), dtype=torch.float32, device=self.device)
        return bound.least(reached[:, k - 1])

    def _placed(self, part: Part, room: int) -> Part:
        """On the device if there is room, else in main memory."""
        if part.nbytes <= room:
            moved = part.to(self.device)
            if self._scorer.most_frequent:
                moved = moved.with_bits(self._scorer.frequent_share, self._scorer.most_frequent)
            return moved
        return part.to(torch.device("cpu"), pin=self.device.type == "cuda")

    def _on_device(self) -> Iterator[Part]:
        """The parts in order; those in main memory are copied while the one before them is searched."""
        if self.device.type != "cuda":
            yield from self._parts
            return
        copying = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        following: Part | None = None
        for i, part in enumerate(self._parts):
            now = following if following is not None else self._copied(part, copying)
            following = self._copied(self._parts[i + 1], copying) if i + 1 < len(self._parts) else None
            torch.cuda.current_stream(self.device).wait_stream(copying)
            yield now

    def _copied(self, part: Part, stream: torch.cuda.Stream) -> Part:
        if part.lengths.device.type == "cuda":
            return part
        with torch.cuda.stream(stream):
            return part.to(self.device)

    def _mask(self, part: Part, masks: Sequence[NDArray[np.bool_] | None]) -> Tensor | None:
        if all(mask is None for mask in masks):
            return None
        whole = np.ones(part.n_rows, dtype=np.uint8)
        for i, mask in enumerate(masks):
            if mask is not None:
                whole[part.offsets[i] : part.offsets[i + 1]] = mask
        return torch.from_numpy(whole).to(self.device)
