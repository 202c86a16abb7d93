"""Teachers' scores as training sees them: made once, kept on disk, looked up by example and passage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.config import Side
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import Weighting, weigh_queries
from sidr_rag.train.guide import Guide
from sidr_rag.train.negatives import NONE, Teacher
from sidr_rag.train.pool import Pool
from sidr_rag.train.sections import CrossTeacher, Distillation, TaughtTerm
from sidr_rag.train.teachers import CrossEncoder, DenseScores, Progress, cross_name, dense_scores
from sidr_rag.train.texts import TextReader
from sidr_rag.types import SparseVectors

# What finds a query's candidates by its words alone: BM25's ingredients over the levels.
_LEXICAL = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.0)
_PAIRS_AT_ONCE = 256
_QUERY_TOKENS = 64
_ENCODED: tuple[TaughtTerm, ...] = ("full", "weighted_full", "dense", "maxsim")

Target = tuple[str, float, NDArray[np.float32], float]


class CrossScores:
    """A cross-encoder's scores of some examples' candidates.

    Args:
        n: number of all examples.
        examples: i64[t], ascending: which examples have candidates.
        pids: i64[t, c], -1 where there are fewer.
        scores: f32[t, c], NaN where not scored.
    """

    def __init__(
        self, n: int, examples: NDArray[np.int64], pids: NDArray[np.int64], scores: NDArray[np.float32]
    ) -> None:
        self.examples = examples
        self._row = np.full(n, -1, dtype=np.int64)
        self._row[examples] = np.arange(len(examples))
        self._pids, self._scores = pids, scores

    def candidates(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Scored candidates i64[n, c] of examples, -1 where there is none."""
        rows = self._row[examples]
        pids = np.array(self._pids[np.maximum(rows, 0)], dtype=np.int64)
        pids[(rows < 0)[:, None] | np.isnan(self._scores[np.maximum(rows, 0)])] = NONE
        return pids

    def scores(self, examples: NDArray[np.int64], pids: NDArray[np.int64]) -> NDArray[np.float32]:
        """f32[n, m] of each example's passages `pids[i]`, NaN where not known."""
        found = np.full(pids.shape, np.nan, dtype=np.float32)
        for i, row in enumerate(self._row[examples]):
            if row >= 0:
                own = self._pids[row]
                order = np.argsort(own)
                at = np.minimum(np.searchsorted(own, pids[i], sorter=order), len(own) - 1)
                here = (own[order[at]] == pids[i]) & (pids[i] != NONE)
                found[i, here] = self._scores[row][order[at[here]]]
        return found


class Teachers:
    """All teachers of a run.

    Args:
        settings: None for none.
        dense: the bi-encoder's scores.
        cross: the cross-encoder's scores.
        guide: the bi-encoder that reads as it goes.
    """

    def __init__(
        self,
        settings: Distillation | None,
        dense: DenseScores | None = None,
        cross: CrossScores | None = None,
        guide: Guide | None = None,
    ) -> None:
        self._settings = settings
        self.dense, self.cross, self.guide = dense, cross, guide

    @property
    def judge(self) -> Teacher | None:
        """The one that tells wrong passages apart: the bi-encoder, which knows every pair, before the cross-encoder."""
        return self.dense if self.dense is not None else self.cross

    @property
    def loss(self) -> Literal["kl", "margin_mse"]:
        """Which distillation loss."""
        return "kl" if self._settings is None else self._settings.loss

    @property
    def anchor(self) -> float:
        """Factor of the distance to the dense teacher's vectors."""
        return 0.0 if self._settings is None or self.dense is None else self._settings.anchor

    def taught(self, by_source: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]] | None:
        """Of each source's examples, those that the cross-encoder has scored; None without one."""
        if self.cross is None:
            return None
        return [own[np.isin(own, self.cross.examples)] for own in by_source]

    @property
    def taught_share(self) -> float:
        """Share of the batches that are drawn from these alone."""
        return 0.0 if self._settings is None or self._settings.cross is None else self._settings.cross.share

    def factor(self, term: str) -> float:
        """How much a term learns from teachers in all; 0 for not at all."""
        return sum(factor for _, factor in self._sources(term))

    def _sources(self, term: str) -> list[tuple[str, float]]:
        if self._settings is None:
            return []
        tables: list[tuple[str, dict[Any, float], object]] = [
            ("cross", self._settings.terms, self.cross),
            ("teacher", self._settings.dense_terms, self._bi_encoder(term)),
        ]
        return [(name, t[term]) for name, t, teacher in tables if teacher is not None and t.get(term, 0.0) > 0]

    def _bi_encoder(self, term: str) -> DenseScores | Guide | None:
        return self.guide if self.guide is not None and term in _ENCODED else self.dense

    def candidates(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every scored candidate of the examples: i64[n, c], -1 where there is none."""
        if self.cross is None:
            return np.empty((len(examples), 0), dtype=np.int64)
        return self.cross.candidates(examples)

    def drawn_candidates(self, examples: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """As many random ones of them as are to be encoded; none where no encoded term learns from the scores."""
        if self._settings is None or not any(self._settings.terms.get(t, 0.0) for t in _ENCODED):
            return np.empty((len(examples), 0), dtype=np.int64)
        every = self.candidates(examples)
        keys = rng.random(every.shape)
        keys[every < 0] = 2.0
        chosen = np.argsort(keys, axis=1)[:, : self._settings.candidates]
        return np.take_along_axis(every, chosen, axis=1)

    def targets(self, term: str, examples: NDArray[np.int64], columns: NDArray[np.int64]) -> list[Target]:
        """What a term is to learn: (name, factor, teacher's scores f32[n, columns] with NaN, teacher's temperature)."""
        found: list[Target] = []
        for name, factor in self._sources(term):
            assert self._settings is not None
            bi_encoder = self._bi_encoder(term)
            if name == "teacher" and bi_encoder is not None:
                found.append((name, factor, bi_encoder.columns(examples, columns), self._settings.dense_temperature))
            elif self.cross is not None and self._settings.cross is not None:
                scores = self.cross.scores(examples, np.broadcast_to(columns, (len(examples), len(columns))))
                found.append((name, factor, scores, self._settings.cross.temperature))
        return found

    def anchor_vectors(self, numbers: NDArray[np.int64], side: Side) -> NDArray[np.float32] | None:
        """The dense teacher's vectors of examples or passages, f32[n, width]; None where the anchor is off."""
        return None if self.anchor <= 0 or self.dense is None else self.dense.vectors(numbers, side)


def load_teachers(
    settings: Distillation | None,
    pool: Pool,
    reader: TextReader,
    shares: NDArray[np.float64],
    seed: int,
    progress: Progress,
    device: torch.device | None = None,
) -> Teachers:
    """Make or read everything that the teachers know about the pool; a killed run goes on where it was."""
    if settings is None:
        return Teachers(None)
    dense = None
    if settings.dense is not None:
        dense = dense_scores(
            settings.dense,
            settings.cache,
            pool.fingerprint,
            lambda i: reader.query(pool.examples[i].query),
            len(pool.examples),
            lambda i: reader.passage(pool.contents[i]),
            len(pool.contents),
            progress,
            device,
        )
    cross = None
    if settings.cross is not None:
        cross = cross_scores(settings.cross, settings.cache, pool, reader, dense, shares, seed, progress, device)
    guide = None if settings.guide is None else Guide(settings.guide, pool, reader, device)
    return Teachers(settings, dense, cross, guide)


def cross_scores(
    teacher: CrossTeacher,
    cache: Path,
    pool: Pool,
    reader: TextReader,
    dense: DenseScores | None,
    shares: NDArray[np.float64],
    seed: int,
    progress: Progress,
    device: torch.device | None = None,
) -> CrossScores:
    """Find each example's candidates and score them with the cross-encoder, or read what the cache has of it."""
    taught = _taught(pool, teacher.queries, shares, seed)
    key = f"{pool.fingerprint} {dense is not None} {hashlib.sha256(taught.tobytes()).hexdigest()}"
    name = cross_name(teacher, key)
    cache.mkdir(parents=True, exist_ok=True)
    pids_path, scores_path = cache / f"{name}-pids.npy", cache / f"{name}-scores.npy"
    if not pids_path.exists():
        _save(pids_path, find_candidates(pool, reader, taught, teacher.candidates, dense, progress))
    pids = np.load(pids_path, mmap_mode="r")
    if not scores_path.exists():
        _save(scores_path, np.full(pids.shape, np.nan, dtype=np.float32))
    scores = np.lib.format.open_memmap(scores_path, mode="r+")
    _score_missing(teacher, pool, reader, taught, pids, scores, progress, device)
    return CrossScores(len(pool.examples), taught, np.asarray(pids), np.asarray(scores))


def _taught(pool: Pool, queries: int | None, shares: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """Which examples are scored, ascending: of each source its share of them, drawn by the seed."""
    if queries is None:
        return np.arange(len(pool.examples), dtype=np.int64)
    kept = [
        own[np.random.default_rng([seed, i]).permutation(len(own))[: round(queries * share)]]
        for i, (own, share) in enumerate(zip(pool.by_source, shares, strict=True))
    ]
    return np.sort(np.concatenate(kept))


def find_candidates(
    pool: Pool, reader: TextReader, examples: NDArray[np.int64], n: int, dense: DenseScores | None, progress: Progress
) -> NDArray[np.int64]:
    """Candidates from each example's own source: its positive, then the best of a lexical and a dense search in turn.

    Returns:
        i64[examples, n]; -1 where there are fewer.
    """
    found = np.full((len(examples), n), NONE, dtype=np.int64)
    for i, number in enumerate(examples):
        example = pool.examples[int(number)]
        collection = pool.collections[example.source]
        own = reader.own_dims([example.query])[0]
        bag = SparseVectors.from_rows([(own, np.ones(len(own), np.float32))], collection.segment.dim)
        index = collection.index
        weights = weigh_queries(bag, bag, _LEXICAL, index.df, index.n_live)
        kept = tuple(level.threshold for level in collection.segment.levels)
        weighting = _LEXICAL if kept == _LEXICAL.levels else Weighting((1,), (1.0,), 1.0, 0.5, 0.4, 0.0)
        lexical = search_index(index, weights, weighting, n)[0][0].astype(np.int64) - 1
        ranked = [list(lexical)]
        if dense is not None:
            ranked.append(list(dense.nearest(int(number), collection.pids, n)))
        turns = [row[rank] for rank in range(n) for row in ranked if rank < len(row)]
        best = list(dict.fromkeys([example.positives[0], *(int(pid) for pid in turns)]))[:n]
        found[i, : len(best)] = best
        if i % 1000 == 999 or i + 1 == len(examples):
            progress("candidates", i + 1, len(examples))
    return found


def _score_missing(
    teacher: CrossTeacher,
    pool: Pool,
    reader: TextReader,
    taught: NDArray[np.int64],
    pids: NDArray[np.int64],
    scores: NDArray[np.float32],
    progress: Progress,
    device: torch.device | None,
) -> None:
    missing = np.flatnonzero((np.isnan(scores) & (pids != NONE)).any(axis=1))
    if not len(missing):
        return
    model = CrossEncoder(teacher.model, device=device)
    rows_at_once = max(1, _PAIRS_AT_ONCE // pids.shape[1])
    for start in range(0, len(missing), rows_at_once):
        rows = missing[start : start + rows_at_once]
        pairs = [(row, column) for row in rows for column in np.flatnonzero(pids[row] != NONE)]
        queries, passages = [], []
        for row, column in pairs:
            query = reader.query(pool.examples[int(taught[row])].query)[:_QUERY_TOKENS]
            passage = reader.passage(pool.contents[int(pids[row, column])])[1:]
            queries.append(query)
            passages.append([*passage[:-1][: teacher.max_length - len(query) - 1], passage[-1]])
        for (row, column), score in zip(pairs, model.scores(queries, passages), strict=True):
            scores[row, column] = score
        if (start // rows_at_once) % 20 == 0 or start + rows_at_once >= len(missing):
            scores.flush()  # type: ignore[attr-defined]
            progress("cross-encoder", min(start + rows_at_once, len(missing)), len(missing))


def _save(path: Path, array: NDArray[Any]) -> None:
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.replace(path)
