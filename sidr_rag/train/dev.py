"""Evaluation during training: nDCG@10 of beta search, and of the blended second stage, on judged sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.windows import TokenVectors, chunks
from sidr_rag.errors import InvalidInputError
from sidr_rag.eval.datasets import Dataset, load_beir
from sidr_rag.eval.measures import measure
from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.rerank.late import blend_scores
from sidr_rag.rerank.maxsim import shares_of, unit_rows
from sidr_rag.rerank.second import first_share
from sidr_rag.search.searcher import SeqHits, search_index
from sidr_rag.search.weighting import BINARY, Weighting, heaviest, idf, weigh_queries
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.train.candidates import PARTS, read_candidates
from sidr_rag.train.data import read_pairs, source_name
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.sections import Dev, DevSet
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import active_vectors, token_states
from sidr_rag.types import Passage, SparseVectors

DEPTH = 10
_MEASURE = "nDCG@10"
_BATCH = 64

Scores = dict[str, dict[str, float]]


@dataclass(frozen=True)
class JudgedSet:
    """A judged set with its index.

    Attributes:
        dataset: questions and grades.
        ids: of the passages, by row.
        contents: the passages.
        index: their bags; row r has the seq r + 1.
    """

    dataset: Dataset
    ids: list[str]
    contents: list[str]
    index: BotIndex

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return self.dataset.name


def load_dev_set(wanted: DevSet, tokenizer: BagTokenizer, levels: Sequence[int]) -> JudgedSet:
    """Read and index a judged set.

    Raises:
        FileReadError: if a file cannot be read.
        InvalidInputError: if it has no judged query.
    """
    dataset = load_beir(wanted.path, wanted.split) if wanted.path.is_dir() else _held_out(wanted.path)
    if not dataset.queries:
        raise InvalidInputError(f"dev.sets: {wanted.path} has no judged query")
    if wanted.queries is not None:
        dataset = dataset.limited(wanted.queries)
    passages = list(dataset.passages())
    contents = [passage.content for passage in passages]
    counts = tokenizer.counts(contents)
    segment = build_segment(counts, np.arange(1, len(contents) + 1, dtype=np.uint64), levels)
    index = BotIndex.of(counts.dim, [SegmentView("dev", segment)])
    return JudgedSet(dataset, [passage.id for passage in passages], contents, index)


def _held_out(path: Path) -> Dataset:
    """A file of pairs as a judged set; titles are left out, since in many sources they repeat the query."""
    rows: dict[str, str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for pair in read_pairs(path):
        row = rows.setdefault(pair.positives[0].text, str(len(rows)))
        query_id = queries.setdefault(pair.query, f"q{len(queries)}")
        qrels.setdefault(query_id, {})[row] = 1
    passages = [Passage(row, text) for text, row in rows.items()]
    texts = {query_id: query for query, query_id in queries.items()}
    return Dataset(source_name(path), "all", lambda: iter(passages), texts, qrels)


@dataclass(frozen=True)
class EncodedSet:
    """A judged set whose questions are encoded.

    Attributes:
        judged: the set.
        theta: V_theta of the questions.
        own: their bags.
        dense: f32[n, hidden], their vectors by the dense head.
        tokens: the vectors of their tokens; empty where the second stage compares none.
    """

    judged: JudgedSet
    theta: SparseVectors
    own: SparseVectors
    dense: NDArray[np.float32]
    tokens: list[TokenVectors]

    def binary(self, dims: int | None = None) -> list[SeqHits]:
        """The paper's beta search, with so many dimensions of each question."""
        theta = self.theta if dims is None else heaviest(self.theta, self.own, dims)
        return search_index(self.judged.index, theta, BINARY, DEPTH)

    def weighted(self, weighting: Weighting, k: int = DEPTH) -> list[SeqHits]:
        """The corpus-weighted beta search."""
        return search_index(self.judged.index, self.weights(weighting), weighting, k)

    def weights(self, weighting: Weighting) -> SparseVectors:
        """What a weighting makes of the questions over the set."""
        index = self.judged.index
        return weigh_queries(self.theta, self.own, weighting, index.df, index.n_live)

    def counted_tokens(self, i: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """A question's tokens as MaxSim takes them: f32[tokens, hidden] of length 1, and the share of each."""
        dims, vectors = self.tokens[i]
        index = self.judged.index
        counts = np.where(dims < 0, 0.0, idf(index.df[np.maximum(dims, 0)], index.n_live))
        return unit_rows(vectors), shares_of(counts)

    def ndcg(self, found: Sequence[SeqHits], places: Sequence[int] | None = None) -> float:
        """Mean nDCG@10 of the questions at some places (None: all); one that finds nothing counts 0."""
        every = list(self.judged.dataset.queries)
        queries = every if places is None else [every[i] for i in places]
        run = {
            query_id: [(self.judged.ids[int(seq) - 1], float(score)) for seq, score in zip(*hits, strict=True)][:DEPTH]
            for query_id, hits in zip(queries, found, strict=True)
        }
        qrels = {query_id: self.judged.dataset.qrels[query_id] for query_id in queries}
        return float(measure(run, replace(self.judged.dataset, qrels=qrels), [_MEASURE])[_MEASURE].mean())


class DevEvaluation:
    """Judged sets and how to score a model on them.

    Args:
        settings: which sets, and whether the second stage is evaluated.
        tokenizer: the model's.
        reader: texts to tokens.
        levels: what the indexes keep.
        model: whose active dimensions the vectors get.
        own: the second stage, one of the names that a model's config.json may give: "theta", "dense", "maxsim", "both",
            "all".
    """

    def __init__(
        self,
        settings: Dev,
        tokenizer: BagTokenizer,
        reader: TextReader,
        levels: Sequence[int],
        model: ModelConfig,
        *,
        own: str,
    ) -> None:
        self._settings, self._reader, self._model, self._parts = settings, reader, model, PARTS[own]
        self._share = first_share(settings.blend, own)
        self.sets = [load_dev_set(wanted, tokenizer, levels) for wanted in settings.sets]

    def scores(self, query: TrainableEncoder, passage: TrainableEncoder, weighting: Weighting) -> Scores:
        """nDCG@10 by search and set: "binary", "weighted" and, where asked for, "late".

        Of a model whose binary queries have layers of their own, "binary" alone: `query` is what reads these.

        Args:
            query: encodes questions; in evaluation mode.
            passage: encodes candidates of the second stage.
            weighting: the constants of the corpus-weighted search.
        """
        found: Scores = {}
        for encoded in self.encoded(query):
            name = encoded.judged.name
            found.setdefault("binary", {})[name] = encoded.ndcg(encoded.binary(self._model.binary_active_dims))
            if self._model.binary_layers:
                continue
            first = encoded.weighted(weighting, max(DEPTH, self._settings.late))
            found.setdefault("weighted", {})[name] = encoded.ndcg(first)
            if self._settings.late:
                some = _spread(len(first), self._settings.late_queries)
                few = [(first[i][0][: self._settings.late], first[i][1][: self._settings.late]) for i in some]
                second = self.second_stage(passage, encoded, few, weighting, some)
                blended = [reordered(hits, own, self._share) for hits, own in zip(few, second, strict=True)]
                found.setdefault("late", {})[name] = encoded.ndcg(blended, some)
        return found

    @torch.no_grad()
    def encoded(self, query: TrainableEncoder, active_dims: int | None = None) -> list[EncodedSet]:
        """Every set with its questions encoded, cut to `active_dims` (None: the model's) and their own tokens."""
        k = self._model.max_active_dims.query if active_dims is None else active_dims
        return [self._encoded(query, judged, k) for judged in self.sets]

    def _encoded(self, query: TrainableEncoder, judged: JudgedSet, k: int) -> EncodedSet:
        theta, own, dense, tokens = [], [], [], []
        for texts in chunks(list(judged.dataset.queries.values()), _BATCH):
            encoded = query.encode([self._reader.query(text) for text in texts])
            bags = self._reader.own_dims(texts)
            vectors = active_vectors(query, encoded, bags, k)
            theta += list(vectors.sparse(vectors.theta, judged.index.dim, k))
            own += [(bag, np.ones(len(bag), np.float32)) for bag in bags]
            dense.append(query.dense(encoded).cpu().numpy())
            if "maxsim" in self._parts:
                dims = [self._reader.token_dims(text) for text in texts]
                tokens += [TokenVectors(*both) for both in zip(dims, token_states(encoded), strict=True)]
        make = partial(SparseVectors.from_rows, dim=judged.index.dim)
        return EncodedSet(judged, make(theta), make(own), np.concatenate(dense), tokens)

    @torch.no_grad()
    def second_stage(
        self,
        passage: TrainableEncoder,
        encoded: EncodedSet,
        first: Sequence[SeqHits],
        weighting: Weighting,
        places: Sequence[int] | None = None,
    ) -> list[NDArray[np.float64]]:
        """The scores that late search blends with the first stage's, f64 for each candidate of each question.

        Args:
            passage: encodes the candidates, each once.
            encoded: the questions.
            first: each question's candidates.
            weighting: of the questions where they meet V_theta of passages.
            places: which questions these are; None for all.
        """
        asked = range(len(encoded.dense)) if places is None else places
        wanted = np.unique(np.concatenate([seqs for seqs, _ in first]))
        contents = [encoded.judged.contents[seq - 1] for seq in wanted.tolist()]
        candidates = read_candidates(passage, self._reader, contents, self._parts, self._model.max_active_dims.passage)
        weights = encoded.weights(weighting)
        return [
            candidates.scores(
                weights.row(i),
                encoded.dense[i],
                encoded.counted_tokens(i) if encoded.tokens else None,
                np.searchsorted(wanted, seqs).tolist(),
            )
            for i, (seqs, _) in zip(asked, first, strict=True)
        ]


def reordered(first: SeqHits, second: NDArray[np.float64], share: float) -> SeqHits:
    """Candidates by the blend of both stages' z-scores; `share` is the first stage's."""
    seqs, values = first
    blended = blend_scores(values, second, share)
    order = np.argsort(-blended, kind="stable")
    return seqs[order], blended[order].astype(np.float32)


def _spread(n: int, most: int) -> list[int]:
    return list(range(n)) if n <= most else [i * n // most for i in range(most)]
