"""Searchers over one corpus, measured in turns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpora import SETS, Corpus
from benchmarks.search_children import ChildFailedError, Served, built
from benchmarks.searchers import searcher
from benchmarks.searchers.base import BatchSearcher

T = TypeVar("T")

_ROUND_SECONDS = 4.0
_LEAST_QUERIES = 3


@dataclass(frozen=True)
class SetTimes:
    """One searcher's times with one set of queries.

    Attributes:
        cpu, wall: milliseconds of each query (of the whole batch, where that was measured), medians over rounds.
        recall: mean over queries, or None where it has no meaning.
        settings: what the searcher chose.
    """

    cpu: list[float]
    wall: list[float]
    recall: float | None
    settings: str

    @property
    def cpu_median(self) -> float:
        """Over queries."""
        return float(np.median(self.cpu))

    @property
    def wall_median(self) -> float:
        """Over queries."""
        return float(np.median(self.wall))

    def cpu_percentile(self, share: float) -> float:
        """Over queries."""
        return float(np.percentile(self.cpu, share))

    def ratio_to(self, other: SetTimes) -> float:
        """This one's median CPU time in the other's, over the queries that both answered."""
        n = min(len(self.cpu), len(other.cpu))
        return float(np.median(self.cpu[:n]) / np.median(other.cpu[:n]))


@dataclass
class Measured:
    """One searcher: its times by set, and why some are missing."""

    sets: dict[str, SetTimes] = field(default_factory=dict)
    failed: str = ""
    index_bytes: int = 0
    resident_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """For the result's file, times rounded."""
        values = asdict(self)
        for times in values["sets"].values():
            times["cpu"], times["wall"] = (np.round(times[clock], 4).tolist() for clock in ("cpu", "wall"))
        return values


def measure_rounds(
    names: Sequence[str], corpus: Corpus, *, rounds: int, batches: bool = False, sets: Sequence[str] = SETS
) -> dict[str, Measured]:
    """Open every searcher in a process of its own, and let them take turns, round by round.

    Args:
        names: of the searchers.
        corpus: what they search.
        rounds: how many turns each gets.
        batches: whether all queries are given in one call, to those that have a way for it.
        sets: names of the query sets.
    """
    measured = {name: Measured() for name in names}
    with contextlib.ExitStack() as stack:
        children: dict[str, Served] = {}
        for name, place in built(names, corpus).items():
            if isinstance(place, str):
                measured[name].failed = place
                continue
            child = _tried(measured[name], partial(Served, name, corpus, place))
            if child is not None:
                children[name] = stack.enter_context(child)
                measured[name].index_bytes = child.opened["bytes"]
                measured[name].resident_bytes = child.opened["resident"] - child.opened["before"]
        for kind in sets:
            _measure_set(kind, children, measured, rounds, batches)
    return measured


def _measure_set(
    kind: str, children: dict[str, Served], measured: dict[str, Measured], rounds: int, batches: bool
) -> None:
    taken: dict[str, dict[str, Any]] = {}
    for name in [name for name in children if kind in searcher(name).sets]:
        request = {"name": kind, "seconds": _ROUND_SECONDS, "least": _LEAST_QUERIES}
        answer = _tried(measured[name], partial(children[name].ask, "take", **request))
        if answer is not None:
            taken[name] = answer
    cpu: dict[str, list[Any]] = {name: [] for name in taken}
    wall: dict[str, list[Any]] = {name: [] for name in taken}
    for _ in range(rounds):
        for name in list(taken):
            do = "batch" if batches and issubclass(searcher(name), BatchSearcher) else "round"
            answer = _tried(measured[name], partial(children[name].ask, do))
            if answer is None:
                del taken[name]
                continue
            cpu[name].append(answer["cpu"])
            wall[name].append(answer["wall"])
    for name, answer in taken.items():
        measured[name].sets[kind] = SetTimes(
            _medians(cpu[name]), _medians(wall[name]), answer["recall"], answer["settings"]
        )


def _medians(runs: list[Any]) -> list[float]:
    values: NDArray[np.float64] = np.median(np.atleast_2d(np.array(runs, dtype=np.float64).T).T, axis=0)
    return [float(v) for v in np.atleast_1d(values)]


def _tried(measured: Measured, call: Callable[[], T]) -> T | None:
    try:
        return call()
    except ChildFailedError as e:
        measured.failed = str(e)
        return None
