"""How far a device's sum can lie from the canonical score, and which passages that leaves as candidates.

A table entry is the weight times a power of two, rounded to the table's type: relatively wrong by at most `rounding`,
or, below the type's normal numbers, by `tiny`. Sums of n such entries in float32 add (n - 1) * 2**-24, the length
factor in float32 a few units more. All terms are non-negative, so for the canonical score s of a passage its sum a is
within s * (1 - e) - d and s * (1 + e) + d. If k passages have sums of at least t, the k-th best canonical score is at
least (t - d) / (1 + e); so whatever belongs to the k best has a sum of at least (t - d) / (1 + e) * (1 - e) - d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Sum = TypeVar("Sum", float, Tensor)
_FACTOR_ERROR = 1e-5  # generous: a power in float32 on any device


@dataclass(frozen=True)
class Bound:
    """The relative and the absolute error of a sum."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: torch.dtype, n_terms: int, largest_factor: float) -> Bound:
        """For sums of at most `n_terms` table entries of a type, times factors up to `largest_factor`."""
        kind = torch.finfo(dtype)
        relative = kind.eps + (n_terms + 4) * 2.0**-23 + _FACTOR_ERROR
        return cls(relative, n_terms * kind.smallest_normal * kind.eps * largest_factor)

    def least(self, reached: Sum) -> Sum:
        """The least sum of a passage among the k best, where k passages reach the given sums."""
        return (reached - self.absolute) / (1.0 + self.relative) * (1.0 - self.relative) - self.absolute


def scales(largest: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each query a power of two that brings its largest weight to between 2**13 and 2**14; 1 where it has none."""
    _, exponents = np.frexp(np.where(largest > 0, largest, 1.0))
    powers: NDArray[np.float64] = np.ldexp(1.0, 14 - exponents)
    return powers
