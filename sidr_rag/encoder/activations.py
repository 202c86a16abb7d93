"""The functions that turn vocabulary logits into non-negative weights, and the body's GELU, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import Activation

# Rational least-maximum fit of (Phi(x) - 1/2) / x in x^2 on |x| <= 5.5 (Phi: the normal distribution function), made
# for this library; x * Phi(x) is then within 2.2e-8 of the exact value before float32 rounding.
_PHI_BOUND = np.float32(5.5)
_PHI_NUMERATOR = (3.98942049e-01, 3.50617326e-02, 4.75626299e-03, 1.81929274e-04, 6.51359713e-06, 2.22197957e-08)
_PHI_DENOMINATOR = (1.0, 2.54550740e-01, 2.93512491e-02, 1.95746741e-03, 7.82487741e-05, 1.19418757e-06)
_GELU_BLOCK = 1 << 15


def elu1p(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The paper's activation (eq. elu1p): x + 1 where x >= 0, else e^x; positive, continuous and increasing.

    Args:
        x: f32 of any shape.

    Returns:
        f32 of the same shape.
    """
    weights: NDArray[np.float32] = np.where(x >= 0, x + np.float32(1), np.exp(np.minimum(x, np.float32(0))))
    return weights


def log1p_relu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """SPLADE's activation: log(1 + max(x, 0)).

    Args:
        x: f32 of any shape.

    Returns:
        f32 of the same shape; 0 where x <= 0.
    """
    weights: NDArray[np.float32] = np.log1p(np.maximum(x, np.float32(0)))
    return weights


def activate(x: NDArray[np.float32], activation: Activation) -> NDArray[np.float32]:
    """Apply the activation of that name to f32 of any shape."""
    return elu1p(x) if activation == "elu1p" else log1p_relu(x)


def gelu_inplace(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """GELU, x * Phi(x), in its exact (erf) form, within about 1e-6 in float32 over the whole line.

    Args:
        x: C-contiguous f32 of any shape; overwritten.

    Returns:
        x.
    """
    flat = x.reshape(-1)
    # Blocks that stay in the second-level cache make a dozen passes cost little more than one.
    for start in range(0, len(flat), _GELU_BLOCK):
        block = flat[start : start + _GELU_BLOCK]
        clipped = np.clip(block, -_PHI_BOUND, _PHI_BOUND)
        square = clipped * clipped
        top = _polynomial(square, _PHI_NUMERATOR)
        top /= _polynomial(square, _PHI_DENOMINATOR)
        top *= clipped
        top += np.float32(0.5)
        block *= top
    return x


def _polynomial(x: NDArray[np.float32], coefficients: tuple[float, ...]) -> NDArray[np.float32]:
    result = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result *= x
        result += np.float32(coefficient)
    return result
