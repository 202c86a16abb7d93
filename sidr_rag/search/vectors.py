"""Vector instructions for compiled kernels, as LLVM's generic vector operations, which any processor can be given.

numba offers no vectors of its own; an intrinsic may write them. Every function here works on one chunk of 512 rows
(`CHUNK_ROWS`) of a u16 accumulator, held in registers meanwhile, or on one passage for 32 queries at once. None checks
bounds. This module imports numba: import it only where a kernel is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.extending
from llvmlite import ir
from numba import types

from sidr_rag.index.postings import CHUNK_ROWS

_code: Any = numba.core.cgutils

LANES = 32  # 16 bits each: one register of AVX-512, two of AVX2, four of NEON or SSE2
_PARTS = CHUNK_ROWS // LANES
_i1, _i8, _i16, _i32, _i64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_Sums = ir.VectorType(_i16, LANES)
_Wide = ir.VectorType(_i32, LANES)
_Mask = ir.VectorType(_i1, LANES)
_none = ir.Constant(_Sums, None)


def _vector_code(function: Callable[..., Any]) -> Any:
    """Numba's decorator, without its types, which would hide what the functions take."""
    return numba.extending.intrinsic(function)


@_vector_code
def add_bitmaps(tyctx: Any, bitmaps: Any, first: Any, words: Any, weights: Any, ahead: Any, sums: Any, at: Any) -> Any:
    """Add weights to the rows of one chunk: `sums[at + r] += weights[i]` where bit r of bitmap i is set, for every i.

    Args:
        tyctx: numba's.
        bitmaps: u32[...].
        first: i64; where the chunk begins in `bitmaps`.
        words: i64[m]; where bitmap i begins, counted from `first`.
        weights: u16[m].
        ahead: i64; how far away the chunk is that is fetched meanwhile.
        sums: u16[...].
        at: i64; where the chunk begins in `sums`.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _, first, words, _, ahead, _, at = args
        data = _pointers(context, b, signature, args)
        chunk = b.gep(data[0], [first])
        target = b.bitcast(b.gep(data[5], [at]), _Sums.as_pointer())
        parts = [_code.alloca_once(b, _Sums) for _ in range(_PARTS)]
        for j, part in enumerate(parts):
            b.store(_load(b, target, j), part)
        count = context.make_array(signature.args[2])(context, b, words).nitems
        with _code.for_range(b, count) as loop:
            weight = _spread(b, b.load(b.gep(data[3], [loop.index])))
            bitmap = b.gep(chunk, [b.load(b.gep(data[2], [loop.index]))])
            _prefetch(b, b.gep(bitmap, [ahead]))
            for j, part in enumerate(parts):
                mask = b.bitcast(b.load(b.gep(bitmap, [_i32(j)])), _Mask)
                b.store(b.add(b.load(part), b.select(mask, weight, _none)), part)
        for j, part in enumerate(parts):
            _store(b, b.load(part), target, j)
        return context.get_dummy_value()

    return types.void(bitmaps, first, words, weights, ahead, sums, at), generate


@_vector_code
def scale_chunk(tyctx: Any, sums: Any, at: Any, steps: Any, row: Any, keys: Any) -> Any:
    """`keys[r] = (sums[at + r] * steps[row + r] >> 16) + (sums[at + r] > 0)` for the 512 rows of a chunk.

    Args:
        tyctx: numba's.
        sums: u16[...].
        at: i64.
        steps: u16[...].
        row: i64.
        keys: u16[512].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = _pointers(context, b, signature, args)
        source, factors = (b.bitcast(b.gep(data[i], [args[i + 1]]), _Sums.as_pointer()) for i in (0, 2))
        target = b.bitcast(data[4], _Sums.as_pointer())
        for j in range(_PARTS):
            _store(b, _scaled(b, _load(b, source, j), _load(b, factors, j)), target, j)
        return context.get_dummy_value()

    return types.void(sums, at, steps, row, keys), generate


@_vector_code
def copy_chunk(tyctx: Any, sums: Any, at: Any, keys: Any) -> Any:
    """`keys[r] = sums[at + r]` for the 512 rows of a chunk.

    Args:
        tyctx: numba's.
        sums: u16[...].
        at: i64.
        keys: u16[512].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = _pointers(context, b, signature, args)
        source, target = (
            b.bitcast(b.gep(data[0], [args[1]]), _Sums.as_pointer()),
            b.bitcast(data[2], _Sums.as_pointer()),
        )
        for j in range(_PARTS):
            _store(b, _load(b, source, j), target, j)
        return context.get_dummy_value()

    return types.void(sums, at, keys), generate


@_vector_code
def mask_chunk(tyctx: Any, keys: Any, bits: Any, row: Any) -> Any:
    """`keys[r] = 0` where bit `row + r` is not set, for the 512 rows of a chunk.

    Args:
        tyctx: numba's.
        keys: u16[512]; changed.
        bits: u32[...].
        row: i64; a multiple of 512.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = _pointers(context, b, signature, args)
        target = b.bitcast(data[0], _Sums.as_pointer())
        words = b.gep(data[1], [b.lshr(args[2], _i64(5))])
        for j in range(_PARTS):
            mask = b.bitcast(b.load(b.gep(words, [_i32(j)])), _Mask)
            _store(b, b.select(mask, _load(b, target, j), _none), target, j)
        return context.get_dummy_value()

    return types.void(keys, bits, row), generate


@_vector_code
def highest(tyctx: Any, keys: Any) -> Any:
    """The highest of the 512 keys of a chunk, u16.

    Args:
        tyctx: numba's.
        keys: u16[512].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        target = b.bitcast(_pointers(context, b, signature, args)[0], _Sums.as_pointer())
        parts = [_load(b, target, j) for j in range(_PARTS)]
        while len(parts) > 1:
            parts = [b.select(b.icmp_unsigned(">", x, y), x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return _call(b, f"llvm.vector.reduce.umax.v{LANES}i16", ir.FunctionType(_i16, [_Sums]), parts)

    return types.uint16(keys), generate


@_vector_code
def sum_passage(
    tyctx: Any, dims: Any, indptr: Any, row: Any, shape: Any, table: Any, step: Any, bounds: Any, sums: Any
) -> Any:
    """One passage against 32 queries: `sums[q]` is what they share, scaled; says which reach their bounds: u32, bit q.

    Args:
        tyctx: numba's.
        dims: u16[...]: `Segment.doc_dims`.
        indptr: i64[...]: `Segment.doc_indptr`.
        row: i64.
        shape: i64[3]: the segment's rows, how many of its levels are read, and their dimensions.
        table: u16[n_keys + 1, 32]: the queries' integer weights, and zeros in the last row.
        step: u16; the scaling of `scale_chunk`; 0 leaves the sums as they are.
        bounds: u16[32].
        sums: u16[32].
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _, _, row, _, table, step, _, _ = args
        data = _pointers(context, b, signature, args)
        weights, bounds, target = (b.bitcast(data[i], _Sums.as_pointer()) for i in (4, 6, 7))
        n_rows, n_levels, dim = (b.load(b.gep(data[3], [_i64(i)])) for i in range(3))
        last = b.sub(b.extract_value(context.make_array(signature.args[4])(context, b, table).shape, 0), _i64(1))
        # Four sums at once: one alone would wait for itself.
        parts = [_code.alloca_once_value(b, _none) for _ in range(4)]

        def add(line: Any, part: Any) -> None:
            b.store(b.add(b.load(part), _load(b, weights, line)), part)

        def line_of(index: Any, base: Any) -> Any:
            return b.add(base, b.zext(b.load(b.gep(data[0], [index])), _i64))

        with _code.for_range(b, n_levels) as levels:
            bounds_of = b.gep(data[1], [b.add(b.mul(levels.index, n_rows), row)])
            start, end = b.load(bounds_of), b.load(b.gep(bounds_of, [_i64(1)]))
            base = b.mul(levels.index, dim)
            fours = b.lshr(b.sub(end, start), _i64(2))
            with _code.for_range(b, fours) as loop:
                index = b.add(start, b.shl(loop.index, _i64(2)))
                for j, part in enumerate(parts):
                    add(line_of(b.add(index, _i64(j)), base), part)
            # What is left of four, without a branch that could be mispredicted: a line of zeros stands for none.
            rest = b.add(start, b.shl(fours, _i64(2)))
            for j in range(3):
                index = b.add(rest, _i64(j))
                there = b.icmp_signed("<", index, end)
                safe = b.select(there, index, _i64(0))
                add(b.select(there, line_of(safe, base), last), parts[j])
        first, second, third, fourth = (b.load(part) for part in parts)
        plain = b.add(b.add(first, second), b.add(third, fourth))
        unscaled = b.icmp_unsigned("==", step, _i16(0))
        values = b.select(unscaled, plain, _scaled(b, plain, _spread(b, step)))
        _store(b, values, target, 0)
        return b.bitcast(b.icmp_unsigned(">=", values, _load(b, bounds, 0)), _i32)

    return types.uint32(dims, indptr, row, shape, table, step, bounds, sums), generate


@_vector_code
def fetch(tyctx: Any, values: Any, at: Any) -> Any:
    """Have `values[at]` brought into the cache; any `at` will do.

    Args:
        tyctx: numba's.
        values: an array.
        at: i64.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        _prefetch(b, b.gep(_pointers(context, b, signature, args)[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(values, at), generate


@_vector_code
def lowest_bit(tyctx: Any, word: Any) -> Any:
    """The number of the lowest set bit of a u32 that is not 0, as i64.

    Args:
        tyctx: numba's.
        word: u32.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.zext(b.cttz(args[0], _i1(1)), _i64)

    return types.int64(word), generate


def _pointers(context: Any, b: Any, signature: Any, args: Any) -> list[Any]:
    """Each array argument's data; None for scalars."""
    return [
        context.make_array(kind)(context, b, value).data if isinstance(kind, types.Array) else None
        for kind, value in zip(signature.args, args, strict=True)
    ]


def _load(b: Any, vectors: Any, j: Any) -> Any:
    loaded = b.load(b.gep(vectors, [_i64(j) if isinstance(j, int) else j]))
    loaded.align = 2
    return loaded


def _store(b: Any, value: Any, vectors: Any, j: int) -> None:
    b.store(value, b.gep(vectors, [_i64(j)])).align = 2


def _spread(b: Any, value: Any) -> Any:
    one = b.insert_element(ir.Constant(_Sums, ir.Undefined), value, _i32(0))
    return b.shuffle_vector(one, ir.Constant(_Sums, ir.Undefined), ir.Constant(_Wide, [0] * LANES))


def _scaled(b: Any, sums: Any, steps: Any) -> Any:
    product = b.mul(b.zext(sums, _Wide), b.zext(steps, _Wide))
    high = b.trunc(b.lshr(product, ir.Constant(_Wide, [16] * LANES)), _Sums)
    return b.add(high, b.zext(b.icmp_unsigned("!=", sums, _none), _Sums))


def _prefetch(b: Any, pointer: Any) -> None:
    byte = _i8.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _i32, _i32, _i32])
    _call(b, "llvm.prefetch.p0i8", kind, [b.bitcast(pointer, byte), _i32(0), _i32(3), _i32(1)])


def _call(b: Any, name: str, kind: Any, args: Any) -> Any:
    return b.call(_code.get_or_insert_function(b.module, kind, name), args)
