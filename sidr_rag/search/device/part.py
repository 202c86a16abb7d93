"""Consecutive segments as tensors: what a device holds of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sidr_rag.index.bot_index import SegmentView

_CHUNK = 1 << 16  # rows unpacked at once while bits are made


@dataclass(frozen=True)
class PartLevel:
    """One level's bags.

    Attributes:
        threshold: n_l of the scoring contract.
        starts: i32[n_rows + 1] into `dims`.
        dims: i16 (the bits of u16) or i32 [nnz]: each row's dimensions, but for those that `bits` holds.
        longest: length of the longest list, bits included.
        frequent: i32[F]: dimensions held as bits, F a multiple of 32; empty where there are none.
        bits: i32[F / 32, n_rows]: bit j of word w tells whether a row has dimension `frequent[32 * w + j]`.
    """

    threshold: int
    starts: Tensor
    dims: Tensor
    longest: int
    frequent: Tensor
    bits: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """All of its memory."""
        return self.starts, self.dims, self.frequent, self.bits


@dataclass(frozen=True)
class Part:
    """Rows of consecutive segments.

    Attributes:
        names: the segments, in order.
        offsets: first row of each segment, and at the end the number of rows.
        levels: the bags, thresholds ascending.
        lengths: f32[n_rows]; tokens of each passage, at least 1.
    """

    names: tuple[str, ...]
    offsets: tuple[int, ...]
    levels: tuple[PartLevel, ...]
    lengths: Tensor

    @property
    def n_rows(self) -> int:
        """Number of passages, deleted ones included."""
        return self.offsets[-1]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        tensors = [self.lengths, *(t for level in self.levels for t in level.tensors())]
        return sum(t.numel() * t.element_size() for t in tensors)

    @classmethod
    def of(cls, views: Sequence[SegmentView]) -> Part:
        """From segments, in main memory."""
        segments = [view.segment for view in views]
        offsets = (0, *np.cumsum([s.n_rows for s in segments]).tolist())
        levels = []
        for i, level in enumerate(segments[0].levels):
            lens = np.concatenate([np.diff(s.levels[i].doc_indptr) for s in segments])
            starts = np.zeros(len(lens) + 1, dtype=np.int64)
            np.cumsum(lens, out=starts[1:])
            dims = np.concatenate([s.levels[i].doc_dims for s in segments])
            signed = dims.view(np.int16) if dims.dtype == np.uint16 else dims.astype(np.int32)
            levels.append(
                PartLevel(
                    level.threshold,
                    torch.from_numpy(starts.astype(np.int32)),
                    torch.from_numpy(signed),
                    int(lens.max(initial=0)),
                    torch.empty(0, dtype=torch.int32),
                    torch.empty((0, len(lens)), dtype=torch.int32),
                )
            )
        lengths = np.concatenate([s.lengths for s in segments]).astype(np.float32)
        return cls(
            tuple(view.name for view in views),
            offsets,
            tuple(levels),
            torch.from_numpy(np.maximum(lengths, np.float32(1))),
        )

    def to(self, device: torch.device, *, pin: bool = False) -> Part:
        """A copy in a device's memory; `pin` prepares a part that stays in main memory for fast copying."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.pin_memory() if pin else tensor.to(device, non_blocking=True)

        levels = [
            replace(v, starts=move(v.starts), dims=move(v.dims), frequent=move(v.frequent), bits=move(v.bits))
            for v in self.levels
        ]
        return replace(self, levels=tuple(levels), lengths=move(self.lengths))

    def with_bits(self, share: float, most: int) -> Part:
        """The same part with its frequent dimensions as bits instead of entries.

        Args:
            share: dimensions in at least this share of the rows count as frequent.
            most: at most so many of each level, a multiple of 32.
        """
        levels = [_with_bits(level, self.n_rows, share, most) for level in self.levels]
        return replace(self, levels=tuple(levels))


def unsigned(dims: Tensor) -> Tensor:
    """Dimensions as i32."""
    return dims.to(torch.int32) & 0xFFFF if dims.dtype == torch.int16 else dims


def _with_bits(level: PartLevel, n_rows: int, share: float, most: int) -> PartLevel:
    dims = unsigned(level.dims)
    counts = torch.bincount(dims) if len(dims) else torch.zeros(1, dtype=torch.int64, device=dims.device)
    enough = int((counts >= max(1.0, share * n_rows)).sum())
    n_frequent = min(enough, most) // 32 * 32
    if not n_frequent:
        return level
    frequent = counts.topk(n_frequent).indices.sort().values
    place = torch.full((len(counts),), -1, dtype=torch.int32, device=dims.device)
    place[frequent] = torch.arange(n_frequent, dtype=torch.int32, device=dims.device)
    bits = torch.zeros((n_frequent // 32, n_rows), dtype=torch.int32, device=dims.device)
    lens = torch.zeros(n_rows, dtype=torch.int32, device=dims.device)
    kept = []
    power = torch.bitwise_left_shift(
        torch.ones(32, dtype=torch.int32, device=dims.device), torch.arange(32, dtype=torch.int32, device=dims.device)
    )
    for first in range(0, n_rows, _CHUNK):
        last = min(first + _CHUNK, n_rows)
        starts = level.starts[first : last + 1].long()
        part = dims[int(starts[0]) : int(starts[-1])]
        rows = torch.repeat_interleave(torch.arange(last - first, device=dims.device), starts.diff())
        at = place[part]
        is_frequent = at >= 0
        held = torch.zeros((last - first, n_frequent), dtype=torch.int32, device=dims.device)
        held[rows[is_frequent], at[is_frequent].long()] = 1
        words = held.view(last - first, n_frequent // 32, 32) * power
        bits[:, first:last] = words.sum(dim=2, dtype=torch.int32).T
        kept.append(level.dims[int(starts[0]) : int(starts[-1])][~is_frequent])
        lens[first:last] = torch.bincount(rows[~is_frequent], minlength=last - first).int()
    starts32 = torch.zeros(n_rows + 1, dtype=torch.int32, device=dims.device)
    starts32[1:] = lens.cumsum(0)
    return replace(level, starts=starts32, dims=torch.cat(kept), frequent=frequent.int(), bits=bits)
