"""Which examples make a batch: sources by weight, each source's examples without repetition until all were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

StepKind = Literal["beta", "full"]


@dataclass(frozen=True)
class Batch:
    """One process's share of a batch.

    Attributes:
        kind: "beta" encodes queries alone, "full" passages too.
        examples: i64[n], numbers of examples.
        collection: the number of the collection that is searched; -1 is all passages.
        seed: of every draw inside the step.
    """

    kind: StepKind
    examples: NDArray[np.int64]
    collection: int
    seed: tuple[int, ...]


def source_shares(sizes: Sequence[int], weights: Sequence[float], size_exponent: float) -> NDArray[np.float64]:
    """How often each source is drawn: proportional to `weight * size ** size_exponent`, f64 that sum to 1."""
    shares = np.array([w * n**size_exponent for w, n in zip(weights, sizes, strict=True)], dtype=np.float64)
    normalised: NDArray[np.float64] = shares / shares.sum()
    return normalised


class Sampler:
    """Draws batches; the same seed, history and position give the same batch, on any number of processes.

    Args:
        by_source: for each source, the numbers of its examples.
        weights: for each source, its weight beside its size.
        size_exponent: a source's share is `weight * size ** size_exponent`.
        one_source: share of the batches whose examples come from one source.
        seed: of all draws.
        rank: this process.
        world: number of processes; each takes every world-th example of a batch.
        taught: for each source, those of its examples that a teacher has scored; None for none.
        taught_share: share of the batches that are drawn from these alone.
    """

    def __init__(
        self,
        by_source: Sequence[NDArray[np.int64]],
        weights: Sequence[float],
        *,
        size_exponent: float,
        one_source: float,
        seed: int,
        rank: int = 0,
        world: int = 1,
        taught: Sequence[NDArray[np.int64]] | None = None,
        taught_share: float = 0.0,
    ) -> None:
        self._groups = list(by_source)
        self._shares = source_shares([len(own) for own in by_source], weights, size_exponent)
        self._taught_share = 0.0 if taught is None else taught_share
        # A source of which nothing was scored gives any of its examples.
        self._groups += [some if len(some) else own for some, own in zip(taught or by_source, by_source, strict=True)]
        self._one_source = one_source
        self._seed, self._rank, self._world = seed, rank, world
        self._drawn = [0] * len(self._groups)

    def draw(self, position: int, kind: StepKind, size: int) -> Batch:
        """The batch at a position (optimizer step times accumulation plus place in it).

        Args:
            position: at least 0; also seeds the step.
            kind: the step's kind.
            size: examples of this process; a source that has fewer gives what it has.
        """
        rng = np.random.default_rng([self._seed, position])
        total = size * self._world
        collection = -1
        first = len(self._shares) if rng.random() < self._taught_share else 0
        if rng.random() < self._one_source:
            collection = int(rng.choice(len(self._shares), p=self._shares))
            total = min(total, max(self._world, len(self._groups[first + collection]) // self._world * self._world))
            examples = self._take(first + collection, total)
        else:
            sources, counts = np.unique(rng.choice(len(self._shares), size=total, p=self._shares), return_counts=True)
            examples = np.concatenate(
                [self._take(first + int(s), int(n)) for s, n in zip(sources, counts, strict=True)]
            )
            examples = examples[rng.permutation(total)]
        return Batch(kind, examples[self._rank :: self._world], collection, (self._seed, position, self._rank))

    def _take(self, group: int, n: int) -> NDArray[np.int64]:
        own = self._groups[group]
        places = self._drawn[group] + np.arange(n)
        self._drawn[group] += n
        parts = []
        for epoch in np.unique(places // len(own)):
            order = np.random.default_rng([self._seed, group, int(epoch)]).permutation(len(own))
            parts.append(own[order[places[places // len(own) == epoch] % len(own)]])
        return np.concatenate(parts)

    def state(self) -> list[int]:
        """How many examples were drawn of each source, and of its taught ones."""
        return list(self._drawn)

    def restore(self, state: Sequence[int]) -> None:
        """Go on from an earlier `state()`."""
        self._drawn = [int(n) for n in state]
