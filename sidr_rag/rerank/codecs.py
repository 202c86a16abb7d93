"""How embeddings are rounded to be kept, and what that costs in accuracy."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError

Vector = tuple[NDArray[np.int32], NDArray[Any]]
"""A sparse vector: dims i32[n] ascending, weights f16[n] or f32[n]."""

T = TypeVar("T")
Blobs = tuple[bytes, bytes]

_HALF_MAX = float(np.finfo(np.float16).max)
_U16_DIMS = 1 << 16


class Codec(Protocol[T]):
    """Embeddings of one kind as two byte strings; encoding what was decoded gives the same bytes."""

    name: str

    def encode(self, vector: T) -> Blobs:
        """Round a vector."""
        ...

    def decode(self, first: bytes, second: bytes) -> T:
        """The rounded vector.

        Raises:
            ValueError: if the bytes are none that `encode` gives.
        """
        ...


class HalfWeights:
    """Sparse vectors with weights in half precision: within 0.05 % of each weight, 4 bytes a dimension."""

    name = "float16"

    def encode(self, vector: Vector) -> Blobs:
        """Round; weights beyond half precision's range become its greatest number."""
        dims, weights = vector
        return _dim_bytes(dims), np.minimum(weights, _HALF_MAX).astype(np.float16).tobytes()

    def decode(self, first: bytes, second: bytes) -> Vector:
        """Dims i32 and weights f16."""
        weights = np.frombuffer(second, np.float16)
        return _checked(first, weights)


class ByteWeights:
    """Sparse vectors with weights in 256 steps: within 0.2 % of the vector's greatest weight, 3 bytes a dimension."""

    name = "uint8"

    def encode(self, vector: Vector) -> Blobs:
        """Round to multiples of a 255th of the greatest weight."""
        dims, weights = vector
        step = np.float32(weights.max(initial=0) / 255)
        codes = np.rint(weights / step) if step else np.zeros(len(weights))
        return _dim_bytes(dims), step.tobytes() + np.minimum(codes, 255).astype(np.uint8).tobytes()

    def decode(self, first: bytes, second: bytes) -> Vector:
        """Dims i32 and weights f32."""
        step, codes = np.frombuffer(second[:4], np.float32), np.frombuffer(second[4:], np.uint8)
        return _checked(first, codes.astype(np.float32) * step)


class ByteVectors:
    """Dense vectors in signed bytes: each number within 0.4 % of the vector's greatest, 1 byte a number."""

    name = "int8"

    def encode(self, vector: NDArray[np.float32]) -> Blobs:
        """Round to multiples of a 127th of the greatest absolute number."""
        step = np.float32(np.abs(vector).max(initial=0) / 127)
        codes = np.rint(vector / step) if step else np.zeros(len(vector))
        return step.tobytes(), np.clip(codes, -127, 127).astype(np.int8).tobytes()

    def decode(self, first: bytes, second: bytes) -> NDArray[np.float32]:
        """The rounded vector, f32[width]."""
        step = np.frombuffer(first, np.float32, count=1)
        rounded: NDArray[np.float32] = np.frombuffer(second, np.int8).astype(np.float32) * step
        return rounded


class HalfVectors:
    """Dense vectors in half precision: each number within 0.05 %, 2 bytes a number."""

    name = "float16"

    def encode(self, vector: NDArray[np.float32]) -> Blobs:
        """Round; numbers beyond half precision's range become its greatest ones."""
        return b"", np.clip(vector, -_HALF_MAX, _HALF_MAX).astype(np.float16).tobytes()

    def decode(self, first: bytes, second: bytes) -> NDArray[np.float32]:
        """The rounded vector, f32[width]."""
        return np.frombuffer(second, np.float16).astype(np.float32)


class SignVectors:
    """One vector for each token of a text, of which the signs are kept: 1 bit a number, 48 bytes a token of 384."""

    name = "sign"

    def encode(self, vector: NDArray[np.uint8]) -> Blobs:
        """The bits as they are: u8[tokens, width / 8]."""
        return np.array(vector.shape[1:], np.uint16).tobytes(), vector.tobytes()

    def decode(self, first: bytes, second: bytes) -> NDArray[np.uint8]:
        """The same bits."""
        (width,) = np.frombuffer(first, np.uint16, count=1)
        if not width:
            raise ValueError("no vectors of tokens")
        return np.frombuffer(second, np.uint8).reshape(-1, int(width))


def weight_codec(precision: str) -> HalfWeights | ByteWeights:
    """The codec of V_theta for an `embedding_precision`.

    Raises:
        InvalidInputError: for any other than "float16" and "uint8".
    """
    if precision == "float16":
        return HalfWeights()
    if precision == "uint8":
        return ByteWeights()
    raise InvalidInputError(f"embedding_precision={precision!r} is not known; choose 'float16' or 'uint8'")


def _dim_bytes(dims: NDArray[Any]) -> bytes:
    small = not len(dims) or int(dims[-1]) < _U16_DIMS
    return dims.astype(np.uint16 if small else np.int32).tobytes()


def _checked(content: bytes, weights: NDArray[Any]) -> Vector:
    # Two bytes a dimension or four: the number of weights tells which.
    small = len(content) == 2 * len(weights)
    dims = np.frombuffer(content, np.uint16 if small else np.int32).astype(np.int32)
    rising = not len(dims) or (dims[0] >= 0 and bool((dims[1:] > dims[:-1]).all()))
    wide = weights.astype(np.float32, copy=False)  # NumPy is slow in half precision
    if len(dims) != len(weights) or not rising or not (wide.min(initial=0) >= 0 and wide.max(initial=0) < np.inf):
        raise ValueError("no sparse vector")
    return dims, weights
