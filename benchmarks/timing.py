"""Clocks around calls, and what to say of repeated measurements."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True)
class Seconds:
    """One measurement: time passed, and time of all cores together."""

    wall: float
    cpu: float


def clocked(call: Callable[[], T]) -> tuple[T, Seconds]:
    """The call's result and what it took, all threads of the process counted."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True)
class QueryTimes:
    """Milliseconds of one method: each query's median over the rounds, f64[queries]."""

    wall: NDArray[np.float64]
    cpu: NDArray[np.float64]


def interleaved_queries(
    methods: Mapping[str, Callable[[int], object]], n_queries: int, rounds: int
) -> dict[str, QueryTimes]:
    """Call every method with every query number, one query at a time; the methods take turns round by round."""
    for method in methods.values():
        for i in range(min(5, n_queries)):
            method(i)  # compiles, maps and fills what is made on first use
    wall = {name: np.zeros((rounds, n_queries)) for name in methods}
    cpu = {name: np.zeros((rounds, n_queries)) for name in methods}
    for r in range(rounds):
        for name, method in methods.items():
            gc.collect()
            for i in range(n_queries):
                wall_start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
                method(i)
                cpu[name][r, i] = (time.process_time_ns() - cpu_start) / 1e6
                wall[name][r, i] = (time.perf_counter_ns() - wall_start) / 1e6
    return {name: QueryTimes(np.median(wall[name], axis=0), np.median(cpu[name], axis=0)) for name in methods}


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(np.median(values))
