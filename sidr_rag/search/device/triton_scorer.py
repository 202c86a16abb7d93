"""Approximate sums by Triton kernels: lists gather rows of an fp16 table, frequent dimensions are a binary product."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sidr_rag.search.device.part import Part
from sidr_rag.search.device.tables import Tables
from sidr_rag.search.device.torch_scorer import BLOCK

_LEAST_COLUMNS = 16  # what a matrix product needs
_FIELDS = tl.constexpr(6)  # of a level: addresses of starts, dims, table, bits and bit table; number of words of bits


class TritonScorer:
    """See `Scorer`; for devices that Triton compiles for, or its interpreter."""

    table_type = torch.float16
    frequent_share = 0.05
    most_frequent = 512

    def columns(self, n_queries: int) -> int:
        """Table columns for a batch: a power of two."""
        return max(_LEAST_COLUMNS, 1 << (n_queries - 1).bit_length())

    def block_maxima(self, part: Part, tables: Tables, factors: Tensor | None, allowed: Tensor | None) -> Tensor:
        """See `Scorer`."""
        n_blocks = -(-part.n_rows // BLOCK)
        maxima = torch.empty((tables.columns, n_blocks), dtype=torch.float32, device=part.lengths.device)
        if n_blocks:
            arguments, _held = _arguments(part, tables, factors, allowed)
            _maxima_kernel[(n_blocks,)](maxima, n_blocks=n_blocks, **arguments)
        return maxima[: tables.n_queries]

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
        sums = torch.empty((len(blocks), BLOCK), dtype=torch.float32, device=part.lengths.device)
        if len(blocks):
            arguments, _held = _arguments(part, tables, factors, allowed)
            _sums_kernel[(len(blocks),)](sums, queries.int(), blocks.int(), **arguments)
        return sums


def _arguments(
    part: Part, tables: Tables, factors: Tensor | None, allowed: Tensor | None
) -> tuple[dict[str, Any], list[Tensor]]:
    """A kernel's arguments, and tensors to hold until it is launched: it knows them by address alone."""
    used = [level for level in part.levels if level.threshold in tables.by_threshold]
    fields, held = [], []
    for level in used:
        table = tables.by_threshold[level.threshold]
        held.append(table[level.frequent.long()])
        tensors = (level.starts, level.dims, table, level.bits, held[-1])
        fields.append([*(tensor.data_ptr() for tensor in tensors), len(level.bits)])
    addresses = torch.tensor(fields, dtype=torch.int64).to(part.lengths.device)
    arguments = {
        "levels": addresses,
        "factors": addresses if factors is None else factors,
        "allowed": addresses if allowed is None else allowed,
        "n_rows": part.n_rows,
        "LEVELS": len(used),
        "HAS_FACTORS": factors is not None,
        "HAS_ALLOWED": allowed is not None,
        "Q": tables.columns,
        "B": BLOCK,
        "NARROW": part.levels[0].dims.dtype == torch.int16,
    }
    return arguments, held


@triton.jit
def _add_bits(acc: Any, rows: Any, real: Any, n_rows: Any, bits: Any, table: Any, words: Any, Q: tl.constexpr) -> Any:
    bit = tl.arange(0, 32)
    column = tl.arange(0, Q)
    for word in range(words):
        held = tl.load(bits + word * n_rows + rows, mask=real, other=0)
        on = ((held[:, None] >> bit[None, :]) & 1).to(tl.float16)
        weights = tl.load(table + (word * 32 + bit)[:, None] * Q + column[None, :])
        acc = tl.dot(on, weights, acc)
    return acc


@triton.jit
def _add_lists(
    acc: Any, rows: Any, real: Any, starts: Any, dims: Any, table: Any, Q: tl.constexpr, NARROW: tl.constexpr
) -> Any:
    start = tl.load(starts + rows, mask=real, other=0)
    length = tl.load(starts + rows + 1, mask=real, other=0) - start
    column = tl.arange(0, Q)
    for p in range(tl.max(length, axis=0)):
        here = p < length
        dim = tl.load(dims + start + p, mask=here, other=0).to(tl.int32)
        if NARROW:
            dim = dim & 0xFFFF
        acc += tl.load(table + dim[:, None] * Q + column[None, :], mask=here[:, None], other=0.0).to(tl.float32)
    return acc


@triton.jit
def _maxima_kernel(
    out: Any,
    levels: Any,
    factors: Any,
    allowed: Any,
    n_rows: Any,
    n_blocks: Any,
    LEVELS: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    HAS_ALLOWED: tl.constexpr,
    Q: tl.constexpr,
    B: tl.constexpr,
    NARROW: tl.constexpr,
) -> None:
    block = tl.program_id(0)
    rows = block * B + tl.arange(0, B)
    real = rows < n_rows
    acc = tl.zeros((B, Q), dtype=tl.float32)
    for i in range(LEVELS):
        level = levels + i * _FIELDS
        starts = tl.load(level).to(tl.pointer_type(tl.int32))
        table = tl.load(level + 2).to(tl.pointer_type(tl.float16))
        bits = tl.load(level + 3).to(tl.pointer_type(tl.int32))
        bit_table = tl.load(level + 4).to(tl.pointer_type(tl.float16))
        words = tl.load(level + 5).to(tl.int32)
        acc = _add_bits(acc, rows, real, n_rows, bits, bit_table, words, Q)
        if NARROW:
            dims = tl.load(level + 1).to(tl.pointer_type(tl.int16))
        else:
            dims = tl.load(level + 1).to(tl.pointer_type(tl.int32))
        acc = _add_lists(acc, rows, real, starts, dims, table, Q, NARROW)
    if HAS_FACTORS:
        acc = acc * tl.load(factors + rows, mask=real, other=0.0)[:, None]
    if HAS_ALLOWED:
        acc = acc * tl.load(allowed + rows, mask=real, other=0).to(tl.float32)[:, None]
    acc = tl.where(real[:, None], acc, 0.0)
    tl.store(out + tl.arange(0, Q) * n_blocks + block, tl.max(acc, axis=0))


@triton.jit
def _sums_kernel(
    out: Any,
    queries: Any,
    blocks: Any,
    levels: Any,
    factors: Any,
    allowed: Any,
    n_rows: Any,
    LEVELS: tl.constexpr,
    HAS_FACTORS: tl.constexpr,
    HAS_ALLOWED: tl.constexpr,
    Q: tl.constexpr,
    B: tl.constexpr,
    NARROW: tl.constexpr,
) -> None:
    pair = tl.program_id(0)
    query = tl.load(queries + pair)
    rows = tl.load(blocks + pair) * B + tl.arange(0, B)
    real = rows < n_rows
    bit = tl.arange(0, 32)
    acc = tl.zeros((B,), dtype=tl.float32)
    for i in range(LEVELS):
        level = levels + i * _FIELDS
        starts = tl.load(level).to(tl.pointer_type(tl.int32))
        table = tl.load(level + 2).to(tl.pointer_type(tl.float16))
        bits = tl.load(level + 3).to(tl.pointer_type(tl.int32))
        bit_table = tl.load(level + 4).to(tl.pointer_type(tl.float16))
        words = tl.load(level + 5).to(tl.int32)
        for word in range(words):
            held = tl.load(bits + word * n_rows + rows, mask=real, other=0)
            weights = tl.load(bit_table + (word * 32 + bit) * Q + query).to(tl.float32)
            acc += tl.sum(((held[:, None] >> bit[None, :]) & 1).to(tl.float32) * weights[None, :], axis=1)
        if NARROW:
            dims = tl.load(level + 1).to(tl.pointer_type(tl.int16))
        else:
            dims = tl.load(level + 1).to(tl.pointer_type(tl.int32))
        start = tl.load(starts + rows, mask=real, other=0)
        length = tl.load(starts + rows + 1, mask=real, other=0) - start
        for p in range(tl.max(length, axis=0)):
            here = p < length
            dim = tl.load(dims + start + p, mask=here, other=0).to(tl.int32)
            if NARROW:
                dim = dim & 0xFFFF
            acc += tl.load(table + dim * Q + query, mask=here, other=0.0).to(tl.float32)
    if HAS_FACTORS:
        acc = acc * tl.load(factors + rows, mask=real, other=0.0)
    if HAS_ALLOWED:
        acc = acc * tl.load(allowed + rows, mask=real, other=0).to(tl.float32)
    tl.store(out + pair * B + tl.arange(0, B), tl.where(real, acc, 0.0))
