"""Co-training with a reader (the paper's third scenario): the query encoder learns from what helps the reader.

The index holds no parameters, so it stays as it is while the encoder moves: nothing is indexed again, and no passage
is ever encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from numpy.typing import NDArray
from torch import Tensor

from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.model_tokenizer import load_tokenizer
from sidr_rag.encoder.resolve import resolve_model
from sidr_rag.errors import InvalidInputError
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.bags import dense_rows
from sidr_rag.train.losses import off_target_spread
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.readers import Reader
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import ActiveVectors, active_vectors
from sidr_rag.train.weights_io import initial_state, load_state, model_config, own_shape, save_model
from sidr_rag.types import Hits, Passage, SparseVectors


class FixedIndex(Protocol):
    """What is searched: a `SiDR`, which this never changes."""

    def search_vectors(self, vectors: SparseVectors, k: int = 10) -> Hits:
        """The k best passages of each query vector."""
        ...

    def get(self, ids: Sequence[str]) -> list[Passage]:
        """Passages by id."""
        ...

    def bags(self, texts: Sequence[str]) -> SparseVectors:
        """Bags of tokens."""
        ...


@dataclass(frozen=True)
class Question:
    """A question with the answers that the reader is to give."""

    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class CoTraining:
    """Settings of `CoTrainer`.

    Attributes:
        batch: questions of a step.
        m: passages fetched for each question and shown to the reader.
        learning_rate: of AdamW.
        loss: "kl" (the retriever's distribution over the fetched passages follows the reader's) or "marginal" (minus
            the log-likelihood of the answer, summed over the fetched passages by the retriever's distribution).
        reader_temperature: divides the reader's log-likelihoods in "kl".
        active_dims: of query vectors.
        seed: of the order of questions.
    """

    batch: int = 16
    m: int = 10
    learning_rate: float = 2.0e-5
    loss: Literal["kl", "marginal"] = "kl"
    reader_temperature: float = 0.5
    active_dims: int = 64
    seed: int = 1


class CoTrainer:
    """Trains a model's query encoder over a fixed index.

    Args:
        index: the passages, indexed with the same model's tokenizer; it is searched, never written.
        reader: gives the signal; it is not trained here.
        model: the model to start from: "default", a folder or a hub name.
        settings: see `CoTraining`.
        dtype: of matrix products.

    Raises:
        InvalidInputError: if the model is no BERT that can be trained here.
    """

    def __init__(
        self,
        index: FixedIndex,
        reader: Reader,
        model: str | Path = "default",
        settings: CoTraining | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._index, self._reader = index, reader
        self._settings = settings or CoTraining()
        self._base = resolve_model(model)
        source = load_config(self._base)
        self._config = model_config(self._base, own_shape(self._base), source.name)
        self._source = source
        tokenizer = load_tokenizer(self._base, self._config, "nfkc")
        self._texts = TextReader(tokenizer, self._config)
        self._dim = tokenizer.vocabulary.dim
        ids = torch.from_numpy(self._texts.token_ids.astype(np.int64))
        self._encoder = TrainableEncoder(self._config, ids, 0.0, dtype)
        load_state(self._encoder, initial_state(self._base, self._config, "query", 0.0))
        self._optimizer = torch.optim.AdamW(self._encoder.parameters(), lr=self._settings.learning_rate)
        self._temperature: float | None = None

    def step(self, questions: Sequence[Question]) -> dict[str, float]:
        """One optimizer step on some questions.

        Returns:
            "loss", and "reader_loss": minus the log-likelihood of the answers given what is retrieved, before the step.
        """
        loss, reader_loss = self._losses(questions)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._encoder.parameters(), 1.0)
        self._optimizer.step()
        return {"loss": float(loss.detach()), "reader_loss": reader_loss}

    def train(self, questions: Sequence[Question], steps: int) -> list[dict[str, float]]:
        """Go through the questions in random order, again and again; returns what each step returned."""
        rng = np.random.default_rng(self._settings.seed)
        order: list[int] = []
        history = []
        for _ in range(steps):
            if len(order) < self._settings.batch:
                order += list(rng.permutation(len(questions)))
            batch, order = order[: self._settings.batch], order[self._settings.batch :]
            history.append(self.step([questions[i] for i in batch]))
        return history

    @torch.no_grad()
    def reader_loss(self, questions: Sequence[Question]) -> float:
        """Mean over questions of -log sum_d p(d | question) p(answer | question, d), d over what is retrieved now."""
        size = self._settings.batch
        parts = [questions[i : i + size] for i in range(0, len(questions), size)]
        return float(np.average([self._losses(part)[1] for part in parts], weights=[len(part) for part in parts]))

    def save(self, folder: str | Path, *, quantize: bool = False) -> Path:
        """Write the model; a store made with the old one opens with it, its index unchanged.

        Raises:
            InvalidInputError: if the model has a passage encoder of its own, which this does not carry over.
        """
        if not self._config.shared_encoder:
            raise InvalidInputError("the model has a passage encoder of its own; save needs a shared encoder")
        weights = {name: value.detach().numpy() for name, value in self._encoder.state_dict().items()}
        weighting = None if self._source.weighting is None else Weighting.from_mapping(self._source.weighting)
        blend = self._source.rerank_blend
        out = Path(folder)
        save_model(
            out,
            {"query": weights},
            self._config,
            self._base,
            dense=self._source.dense is not None,
            weighting=weighting,
            rerank_blend=blend,
            reranker=self._source.reranker,
            quantize=quantize,
        )
        return out

    def _losses(self, questions: Sequence[Question]) -> tuple[Tensor, float]:
        encoded = self._encoder.encode([self._texts.query(q.text) for q in questions])
        own = self._texts.own_dims([q.text for q in questions])
        vectors = active_vectors(self._encoder, encoded, own, self._settings.active_dims)
        rows = vectors.sparse(vectors.theta, self._dim, self._settings.active_dims)
        hits = self._index.search_vectors(rows, k=self._settings.m)
        scores, real = self._scores(vectors, hits)
        likelihoods = torch.full(scores.shape, float("-inf"))
        for i, (question, ids) in enumerate(zip(questions, hits.ids, strict=True)):
            if ids:
                contents = [passage.content for passage in self._index.get(ids)]
                found = self._reader.log_likelihoods(question.text, contents, question.answers)
                likelihoods[i, : len(ids)] = torch.from_numpy(np.asarray(found, dtype=np.float32))
        some = real.any(dim=1)
        if not bool(some.any()):
            return scores.sum() * 0.0, float("inf")
        if self._temperature is None:
            self._temperature = off_target_spread(scores, torch.zeros(len(scores), dtype=torch.int64), real)
        masked = (scores / self._temperature).masked_fill(~real, float("-inf"))[some]
        chosen, likelihoods, real = F.log_softmax(masked, dim=1), likelihoods[some], real[some]
        joint = torch.where(real, chosen + likelihoods, float("-inf"))
        marginal = -torch.logsumexp(joint, dim=1).mean()
        if self._settings.loss == "marginal":
            return marginal, float(marginal.detach())
        target = torch.softmax(likelihoods / self._settings.reader_temperature, dim=1)
        ratio = torch.where(real, torch.log(target.clamp(min=1e-9)) - chosen, 0.0)
        return (target * ratio).sum(dim=1).mean(), float(marginal.detach())

    def _scores(self, vectors: ActiveVectors, hits: Hits) -> tuple[Tensor, Tensor]:
        """<V_theta(q), V_BoT(d)> of what was found, with gradients, f32[n, m]; and which places hold a passage."""
        unique = list(dict.fromkeys(passage_id for ids in hits.ids for passage_id in ids))
        place = {passage_id: i for i, passage_id in enumerate(unique)}
        bags = self._index.bags([passage.content for passage in self._index.get(unique)]) if unique else None
        m = max((len(ids) for ids in hits.ids), default=0)
        columns: NDArray[np.int64] = np.zeros((len(hits.ids), max(1, m)), dtype=np.int64)
        real = torch.zeros(columns.shape, dtype=torch.bool)
        for i, ids in enumerate(hits.ids):
            columns[i, : len(ids)] = [place[passage_id] for passage_id in ids]
            real[i, : len(ids)] = True
        rows = dense_rows(vectors.dims, vectors.theta, self._dim)
        if bags is None:
            return rows.sum(dim=1, keepdim=True) * 0.0, real
        every = rows @ torch.from_numpy(bags.toarray()).t()
        return every.gather(1, torch.from_numpy(columns)), real
