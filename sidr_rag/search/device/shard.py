"""The part of an index that one device searches: what it keeps there, what is streamed to it, and its candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
_MOST_ENTRIES = 1 << 30  # of a part: they are addressed by i32
_MOST_SMALL_PARTS = 16
_PAIRS = 1 << 14  # (query, block) pairs whose sums are held at once


@dataclass(frozen=True)
class Rules:
    """How sums become scores.

    Attributes:
        k: how many are wanted.
        most: give a query up when it has more candidates than this.
        exponent, slope, average: of s(d); exponent 0 leaves it out.
        largest_factor: an upper bound of s(d).
    """

    k: int
    most: int
    exponent: float
    slope: float
    average: float
    largest_factor: float


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
        self._masks: dict[str, tuple[list[NDArray[np.bool_] | None], Tensor]] = {}  # by a part's first segment

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(part.nbytes for part in self._parts if part.lengths.device == self.device)

    def hold(self, views: Sequence[SegmentView]) -> None:
        """Take over these segments: what is there stays, only new ones are copied."""
        kept = self._still_there(views)
        used = sum(part.nbytes for part in kept.values() if part.lengths.device == self.device)
        self._parts, self._masks = [], {}
        i = 0
        while i < len(views):
            part = kept.get(i)
            if part is None:
                end = _end_of_part(views, i, kept)
                part = self._placed(Part.of(views[i:end]), self._memory - used)
                used += part.nbytes if part.lengths.device == self.device else 0
            self._parts.append(part)
            i += len(part.names)

    def _still_there(self, views: Sequence[SegmentView]) -> dict[int, Part]:
        """The parts whose segments are all among these, by the position of the first; many small ones are left out."""
        position = {view.name: i for i, view in enumerate(views)}
        kept = {}
        for part in self._parts:
            first = position.get(part.names[0], len(views))
            if tuple(view.name for view in views[first : first + len(part.names)]) == part.names:
                kept[first] = part
        small = [first for first, part in kept.items() if part.n_rows < MOST_ROWS // 2]
        if len(small) >= _MOST_SMALL_PARTS:
            for first in small:
                del kept[first]
        return kept

    def candidates(
        self,
        tables: Tables,
        rules: Rules,
        positions: dict[str, int],
        allowed: Sequence[NDArray[np.bool_] | None],
        *,
        keep_masks: bool = False,
    ) -> tuple[Candidates, NDArray[np.bool_]]:
        """Every row that can be among the k best of a query, and a few more; and which queries were given up.

        Args:
            tables: on this device.
            rules: see `Rules`.
            positions: position in the index of each segment.
            allowed: for each segment of the index, bool[n_rows], or None for all.
            keep_masks: whether these very arrays will be given again, and may stay on the device.
        """
        n = tables.n_queries
        reached = torch.zeros((n, 0), dtype=torch.float32, device=self.device)
        found: list[Candidates] = []
        counts = np.zeros(n, dtype=np.int64)
        for part in self._on_device():
            factors = None
            if rules.exponent:
                factors = (1.0 - rules.slope + rules.slope * (part.lengths / rules.average)) ** -rules.exponent
            mask = self._mask(part, [allowed[positions[name]] for name in part.names], keep=keep_masks)
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
                if (counts > rules.most).any():
                    going = torch.from_numpy(counts <= rules.most).to(self.device)[q]
                    q, b = q[going], b[going]
                sums = self._scorer.block_sums(part, tables, factors, mask, q, b)
                pair, inside = torch.nonzero((sums >= least[q][:, None]) & (sums > 0), as_tuple=True)
                chosen = sums[pair, inside].cpu().numpy()
                asked = q[pair].cpu().numpy()
                rows = (b[pair] * BLOCK + inside).cpu().numpy()
                counts += np.bincount(asked, minlength=n)
                at = np.searchsorted(np.array(part.offsets), rows, side="right") - 1
                views = np.array([positions[name] for name in part.names], dtype=np.int64)[at]
                found.append(Candidates(asked, views, rows - np.array(part.offsets)[at], chosen))
        return Candidates.joined(found), counts > rules.most

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
            torch.cuda.current_stream(self.device).wait_stream(copying)  # before the next copy is there to wait for
            following = self._copied(self._parts[i + 1], copying) if i + 1 < len(self._parts) else None
            yield now

    def _copied(self, part: Part, stream: torch.cuda.Stream) -> Part:
        if part.lengths.device.type == "cuda":
            return part
        with torch.cuda.stream(stream):
            return part.to(self.device)

    def _mask(self, part: Part, masks: list[NDArray[np.bool_] | None], *, keep: bool) -> Tensor | None:
        if all(mask is None for mask in masks):
            return None
        held = self._masks.get(part.names[0]) if keep else None
        if held is not None and all(old is new for old, new in zip(held[0], masks, strict=True)):
            return held[1]
        whole = np.ones(part.n_rows, dtype=np.uint8)
        for i, mask in enumerate(masks):
            if mask is not None:
                whole[part.offsets[i] : part.offsets[i + 1]] = mask
        placed = torch.from_numpy(whole).to(self.device)
        if keep:
            self._masks[part.names[0]] = masks, placed
        return placed


def _end_of_part(views: Sequence[SegmentView], start: int, kept: Mapping[int, Part]) -> int:
    """One after the last of the segments, at least one, that make a part together."""
    end, rows, entries = start, 0, 0
    while end < len(views) and end not in kept:
        segment = views[end].segment
        rows, entries = rows + segment.n_rows, entries + len(segment.levels[0].doc_dims)
        if end > start and (rows > MOST_ROWS or entries > _MOST_ENTRIES):
            break
        end += 1
    return end
