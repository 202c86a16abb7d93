"""In-training retrieval (section 3.5 of the paper): beta search on the fixed index, and which results are wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sidr_rag.eval.answers import has_answer
from sidr_rag.index.bot_index import BotIndex
from sidr_rag.search.searcher import SearchPool, search_index
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.pool import Collection, Example, Pool
from sidr_rag.types import SparseVectors

NONE = -1


class Teacher(Protocol):
    """Scores of (query, passage) pairs that training itself does not move."""

    def scores(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.float32]:
        """f32[n, m]: for each example, the scores of its passages `pids[i]`; NaN where not known."""
        ...


class Retriever:
    """Fetches passages with the current query vectors; remembers how long that took.

    Attributes:
        seconds: of the last call.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._pool = SearchPool(threads)
        self.seconds = 0.0

    def fetch(self, vectors: SparseVectors, collection: Collection, weighting: Weighting, m: int) -> NDArray[np.int64]:
        """The best m passages of each query by the search's own scores.

        Args:
            vectors: w(t) of the queries, as the scoring contract wants them.
            collection: where to search; its index never changes.
            weighting: levels, gains and length factor.
            m: at least 1.

        Returns:
            pids i64[queries, m], best first, -1 where a query has fewer matches.
        """
        start = time.perf_counter()
        # A state of its own, since an index remembers the length factors of every exponent, which training moves.
        kept = collection.index
        index = BotIndex(kept.dim, kept.views, kept.df, kept.n_live, kept.total_length)
        found = np.full((len(vectors), m), NONE, dtype=np.int64)
        for i, (seqs, _) in enumerate(search_index(index, vectors, weighting, m, pool=self._pool)):
            found[i, : len(seqs)] = seqs.astype(np.int64) - 1
        self.seconds = time.perf_counter() - start
        return found


class Judge:
    """Tells wrong passages from right ones.

    A passage is wrong for a query if none of the query's known positives is it and
    - with answer strings: none of them occurs in it (DPR's matching on normalised tokens);
    - else, with a teacher: the teacher scores it below the query's positive by at least the margin;
    - else: always.

    Args:
        pool: examples and passages.
        teacher: None leaves the second rule out; where its score is not known, the passage counts as right.
        margin: see above.
    """

    def __init__(self, pool: Pool, teacher: Teacher | None, margin: float) -> None:
        self._pool = pool
        self._teacher = teacher
        self._margin = margin

    def wrong(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[n, m]: whether passage `pids[i, j]` is wrong for example i; false at -1.

        Args:
            examples: i64[n], numbers of examples.
            pids: i64[n, m].
        """
        described = [self._pool.examples[int(i)] for i in examples]
        possible: NDArray[np.bool_] = (pids != NONE) & ~self.known(described, pids)
        wrong = possible if self._teacher is None else possible & self._below(examples, described, pids)
        for i, example in enumerate(described):
            if example.answers:
                for j in np.flatnonzero(possible[i]):
                    wrong[i, j] = not has_answer(self._pool.contents[int(pids[i, j])], example.answers)
        return wrong

    def known(self, examples: Sequence[Example], pids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[n, m]: whether the passage answers the query according to any source."""
        positives = self._pool.known_positives
        known: NDArray[np.bool_] = np.stack(
            [np.isin(row, list(positives[example.query])) for example, row in zip(examples, pids, strict=True)]
        )
        return known

    def _below(
        self, numbers: NDArray[np.int64], examples: Sequence[Example], pids: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        assert self._teacher is not None
        first = np.array([[example.positives[0]] for example in examples], dtype=np.int64)
        scores = self._teacher.scores(numbers, np.concatenate([first, pids], axis=1))
        below: NDArray[np.bool_] = scores[:, 1:] < scores[:, :1] - self._margin
        # No answer strings and no teacher's score: not known, so not used.
        return below


def chosen_negatives(
    fetched: NDArray[np.int64],
    wrong: NDArray[np.bool_],
    given: Sequence[tuple[int, ...]],
    n: int,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """For each query, n of its wrong fetched passages at random; where there are fewer, the source's own make up.

    Args:
        fetched: pids i64[queries, m].
        wrong: bool[queries, m].
        given: for each query, the negatives that its source gives.
        n: at least 0.
        rng: of the draw.
    """
    chosen = []
    for row, usable, own in zip(fetched, wrong, given, strict=True):
        found = row[usable]
        picked = found[rng.permutation(len(found))[:n]]
        if len(picked) < n and own:
            rest = np.setdiff1d(np.array(own, dtype=np.int64), picked)
            picked = np.concatenate([picked, rest[rng.permutation(len(rest))[: n - len(picked)]]])
        chosen.append(picked)
    return chosen
