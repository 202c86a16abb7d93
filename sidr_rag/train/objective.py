"""One step's loss: queries are encoded, the index is searched, and the terms of the loss are summed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.search.weighting import BINARY
from sidr_rag.train.bags import Bags, CorpusWeighting, columns_of, dense_rows, idf_of
from sidr_rag.train.config import TrainConfig
from sidr_rag.train.distill import Teachers
from sidr_rag.train.distributed import averaged
from sidr_rag.train.losses import accuracy, contrastive, distillation, off_target_spread
from sidr_rag.train.maxsim import maxsim
from sidr_rag.train.model import Encoded, TrainableEncoder
from sidr_rag.train.negatives import Judge, Retriever, chosen_negatives
from sidr_rag.train.pool import Collection, Example, Pool
from sidr_rag.train.sampler import Batch
from sidr_rag.train.sections import ENCODED_TERMS, TERMS
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import ActiveVectors, active_vectors, kept_dims

Metrics = dict[str, float]


@dataclass
class _Step:
    """What the terms of one step share."""

    batch: Batch
    examples: list[Example]
    positives: NDArray[np.int64]
    collection: Collection
    rng: np.random.Generator
    fetched: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    negatives: list[NDArray[np.int64]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=dict)
    losses: list[Tensor] = field(default_factory=list)


class Objective(nn.Module):
    """The encoders, the constants of the corpus-weighted score and the temperatures, with the loss over them.

    Args:
        config: the run.
        model: the model that is trained.
        pool: examples and passages.
        reader: texts to tokens.
        teachers: for distillation and for telling negatives; may be empty.
    """

    def __init__(
        self, config: TrainConfig, model: ModelConfig, pool: Pool, reader: TextReader, teachers: Teachers
    ) -> None:
        super().__init__()
        self._config, self._pool, self._reader, self._teachers = config, pool, reader, teachers
        self._dim = pool.collections[-1].segment.dim
        ids = torch.from_numpy(reader.token_ids.astype(np.int64))
        dtype = torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
        sides: tuple[Side, ...] = ("query",) if model.shared_encoder else ("query", "passage")
        self.encoders = nn.ModuleDict(
            {side: TrainableEncoder(model, ids, config.model.dropout, dtype) for side in sides}
        )
        self.corpus = CorpusWeighting(config.corpus.start, config.corpus.learned)
        for term in TERMS:
            start = config.terms[term].temperature if term in config.terms else "auto"
            self.register_buffer(f"temperature_{term}", torch.tensor(float("nan") if start == "auto" else float(start)))
        self._retriever = Retriever(config.threads)
        self._judge = Judge(pool, teachers.judge, config.retrieval.margin)
        self._idf = [idf_of(collection) for collection in pool.collections]

    def encoder(self, side: Side) -> TrainableEncoder:
        """The encoder of a side; one object where it is shared."""
        encoder = self.encoders[side if side in self.encoders else "query"]
        assert isinstance(encoder, TrainableEncoder)
        return encoder

    def follow(self, config: TrainConfig) -> None:
        """Go on under another configuration of the same run; see `TrainConfig.at`."""
        if config.corpus != self._config.corpus:
            device = self.corpus.log_blend.device
            self.corpus = CorpusWeighting(config.corpus.start, config.corpus.learned).to(device)
        for name, term in config.terms.items():
            if term != self._config.terms.get(name) and term.temperature != "auto":
                getattr(self, f"temperature_{name}").fill_(term.temperature)
        self._config = config

    def _on_device(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.corpus.log_blend.device)

    def forward(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The weighted sum of all terms of a step, and what people want to read about it."""
        examples = [self._pool.examples[int(i)] for i in batch.examples]
        rng = np.random.default_rng(batch.seed)
        positives = np.array([e.positives[rng.integers(len(e.positives))] for e in examples], dtype=np.int64)
        none = np.empty((len(examples), 0), dtype=np.int64)
        collection = self._pool.collections[batch.collection]
        step = _Step(batch, examples, positives, collection, rng, none, none.astype(np.bool_))
        texts = [example.query for example in examples]
        query = self.encoder("query")
        encoded = query.encode([self._reader.query(text) for text in texts])
        vectors = active_vectors(query, encoded, self._reader.own_dims(texts), self._config.steps.active_dims)
        idf = self._on_device(self._idf[batch.collection])[vectors.dims]
        weighted = self.corpus.query_weights(vectors.theta, vectors.own, idf)
        self._fetch(step, vectors, weighted)
        self._bag_terms(step, vectors, weighted)
        if batch.kind == "full":
            self._encoded_terms(step, vectors, weighted, encoded)
        self._anchor(step, query, encoded, batch.examples, "query")
        step.metrics |= _facts(vectors)
        total = torch.stack(step.losses).sum()
        step.metrics["loss"] = float(total.detach())
        return total, step.metrics

    # Retrieval

    def _fetch(self, step: _Step, vectors: ActiveVectors, weighted: Tensor) -> None:
        """Search with the present query vectors, tell wrong passages apart, and draw hard negatives for a full step."""
        settings = self._config.retrieval
        if settings.m:
            self._search(step, vectors, weighted)
        if step.batch.kind == "full":
            given = [example.negatives for example in step.examples]
            step.negatives = chosen_negatives(step.fetched, step.wrong, given, settings.negatives, step.rng)

    def _search(self, step: _Step, vectors: ActiveVectors, weighted: Tensor) -> None:
        settings = self._config.retrieval
        levelled = self.learns("weighted")
        weights, weighting = (weighted, self.corpus.constants()) if levelled else (vectors.theta, BINARY)
        rows = vectors.sparse(weights, self._dim, settings.active_dims)
        step.fetched = self._retriever.fetch(rows, step.collection, weighting, settings.m)
        step.wrong = self._judge.wrong(step.batch.examples, step.fetched)
        step.metrics["retrieval_ms"] = 1000 * self._retriever.seconds
        step.metrics["retrieved_wrong"] = float(step.wrong.mean())
        step.metrics["retrieved_positive"] = float((step.fetched == step.positives[:, None]).any(axis=1).mean())

    def _allowed(self, step: _Step, columns: NDArray[np.int64]) -> Tensor:
        """bool[queries, columns]: which passages may count against a query."""
        n = len(step.examples)
        allowed = ~self._judge.known(step.examples, np.broadcast_to(columns, (n, len(columns))))
        if self._teachers.dense is not None:
            cosines = self._teachers.dense.columns(step.batch.examples, columns)
            own = self._teachers.dense.scores(step.batch.examples, step.positives[:, None])
            allowed &= cosines < own - self._config.retrieval.margin
        order = np.argsort(columns)
        for i, (row, usable) in enumerate(zip(step.fetched, step.wrong, strict=True)):
            here = (row >= 0) & np.isin(row, columns)
            allowed[i, order[np.searchsorted(columns, row[here], sorter=order)]] = usable[here]
        return self._on_device(allowed)

    # Terms over bags of tokens: no passage is encoded

    def _bag_terms(
        self,
        step: _Step,
        vectors: ActiveVectors,
        weighted: Tensor,
    ) -> None:
        on = [term for term in ("query_bot", "weighted") if self.learns(term)]
        if not on:
            return
        settings = self._config.retrieval
        found = step.fetched[:, : settings.bags]
        some = min(settings.random_bags, len(step.collection.pids))
        others = step.rng.choice(step.collection.pids, size=some, replace=False)
        candidates = self._teachers.candidates(step.batch.examples)
        columns = columns_of([step.positives, *step.negatives, found[found >= 0], candidates[candidates >= 0], others])
        bags = Bags(step.collection, columns, vectors.theta.device)
        allowed = self._allowed(step, columns)
        for term in on:
            if term == "query_bot":  # L(V_theta(q), V_BoT(p)), the first half of L_semi-para
                cut = vectors.cut(self._config.dims_of(term))
                scores = bags.levels[0].scores(dense_rows(vectors.dims, cut, self._dim))
            else:  # the same with the search's levels, idf, length factor and own words
                scores = self.corpus.scores(dense_rows(vectors.dims, weighted, self._dim), bags)
            self._add(step, term, scores, columns, allowed)
            self._distil(step, term, scores, columns)

    # Terms over encoded passages

    def _encoded_terms(
        self,
        step: _Step,
        vectors: ActiveVectors,
        weighted: Tensor,
        encoded: Encoded,
    ) -> None:
        on = [term for term in ENCODED_TERMS if self.learns(term)]
        if not on:
            return
        candidates = self._teachers.drawn_candidates(step.batch.examples, step.rng)
        columns = columns_of([step.positives, *step.negatives, candidates[candidates >= 0]])
        allowed = self._allowed(step, columns)
        passage = self.encoder("passage")
        texts = [self._pool.contents[pid] for pid in columns]
        found = passage.encode([self._reader.passage(text) for text in texts])
        step.metrics["passages_encoded"] = float(len(columns))
        # Of L_para, of L_para with the query as the search weighs it, of the second half of L_semi-para.
        queries = {"full": vectors.theta, "weighted_full": weighted, "bot_passage": vectors.own}
        if queries.keys() & set(on):
            dims = vectors.used_dims()
            weights = passage.weights_at(found, dims)
            if self._config.steps.passage_active_dims is not None:
                own = self._reader.own_dims(texts)
                weights = weights * kept_dims(passage, found, own, dims, self._config.steps.passage_active_dims)
            places = torch.searchsorted(dims, vectors.dims).clamp(max=len(dims) - 1)
        for term in on:
            if term == "dense":
                scores = self.encoder("query").dense(encoded) @ passage.dense(found).t()
            elif term == "maxsim":
                scores = maxsim(encoded, found, self._token_counts(step), passage.dtype)
            else:
                scores = dense_rows(places, queries[term] * vectors.real, len(dims)) @ weights.t()
            self._add(step, term, scores, columns, allowed)
            self._distil(step, term, scores, columns)
        self._anchor(step, passage, found, columns, "passage")

    def _token_counts(self, step: _Step) -> list[NDArray[np.float32]]:
        """What each token of each query counts in MaxSim: its idf in the collection, f32[tokens]."""
        idf = self._idf[step.batch.collection]
        dims = [self._reader.token_dims(example.query) for example in step.examples]
        return [np.where(own < 0, 0.0, idf[np.maximum(own, 0)]).astype(np.float32) for own in dims]

    # Sums

    def learns(self, term: str) -> bool:
        """Whether a term is a part of the loss, by itself or through a teacher."""
        return self._config.weight(term) > 0 or self._teachers.factor(term) > 0

    @property
    def teaches_dense(self) -> bool:
        """Whether the dense head learns anything: by its term, or by the dense teacher's vectors."""
        return self.learns("dense") or self._teachers.anchor > 0

    def _temperature(self, term: str, scores: Tensor, target: Tensor, allowed: Tensor) -> Tensor:
        value: Tensor = getattr(self, f"temperature_{term}")
        if bool(torch.isnan(value)):
            value.fill_(averaged(off_target_spread(scores, target, allowed)))
        return value

    def _add(self, step: _Step, term: str, scores: Tensor, columns: NDArray[np.int64], allowed: Tensor) -> None:
        order = np.argsort(columns)
        target = self._on_device(order[np.searchsorted(columns, step.positives, sorter=order)])
        temperature = self._temperature(term, scores, target, allowed)
        step.metrics[f"accuracy_{term}"] = accuracy(scores, target, allowed)
        weight = self._config.weight(term)
        if weight > 0:
            loss = contrastive(scores, target, allowed, temperature, self._config.terms[term].directions)
            step.metrics[f"loss_{term}"] = float(loss.detach())
            step.losses.append(weight * loss)

    def _distil(self, step: _Step, term: str, scores: Tensor, columns: NDArray[np.int64]) -> None:
        temperature = getattr(self, f"temperature_{term}")
        for name, factor, teacher_scores, teacher_temperature in self._teachers.targets(
            term, step.batch.examples, columns
        ):
            teacher = self._on_device(teacher_scores)
            known = ~torch.isnan(teacher)
            kind = self._teachers.loss
            filled = torch.where(known, teacher, 0.0)
            loss = distillation(scores, filled, known, temperature, teacher_temperature, kind)
            step.metrics[f"{name}_{term}"] = float(loss.detach())
            step.losses.append(factor * loss)

    def _anchor(
        self, step: _Step, encoder: TrainableEncoder, encoded: Encoded, numbers: NDArray[np.int64], side: Side
    ) -> None:
        vectors = self._teachers.anchor_vectors(numbers, side)
        if vectors is None:
            return
        cosine = (encoder.dense(encoded) * self._on_device(vectors)).sum(dim=1).mean()
        step.metrics[f"anchor_{side}"] = float(1 - cosine.detach())
        step.losses.append(self._teachers.anchor * (1 - cosine))


def _facts(vectors: ActiveVectors) -> Metrics:
    """Sparsity: how many dimensions weigh more than 1 (a positive logit), and the own tokens' share of the weight."""
    theta = vectors.theta.detach()
    total = theta.sum(dim=1).clamp(min=1e-9)
    return {
        "dims_above_one": float((theta > 1).sum(dim=1).float().mean()),
        "own_share": float(((theta * vectors.own).sum(dim=1) / total).mean()),
        "theta_sum": float(total.mean()),
    }
