"""The sections of a training configuration, each with its defaults; see `sidr_rag.train.config`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sidr_rag.encoder.config import PerSide
from sidr_rag.search.weighting import Weighting

SourceFormat = Literal["pairs", "dpr", "beir"]
Directions = Literal["both", "query", "passage"]
TaughtTerm = Literal["weighted", "query_bot", "full", "weighted_full", "dense", "maxsim"]
TERMS = ("full", "query_bot", "bot_passage", "weighted", "weighted_full", "dense", "maxsim")
ENCODED_TERMS = ("full", "weighted_full", "bot_passage", "dense", "maxsim")
"""Those that encode passages."""


@dataclass(frozen=True)
class Source:
    """One set of training pairs.

    Attributes:
        path: a JSON-lines file of pairs, a DPR JSON file, or a BEIR folder; relative to the configuration's folder.
        format: "pairs", "dpr" or "beir".
        passages: JSON-lines files of further passages of the same collection, found as negatives.
        weight: its share in the mix is `weight * size ** data.size_exponent`.
        limit: use at most so many pairs, drawn by the seed.
        split: which qrels of a BEIR folder.
    """

    path: Path
    format: SourceFormat = "pairs"
    passages: tuple[Path, ...] = ()
    weight: float = 1.0
    limit: int | None = None
    split: str = "train"


@dataclass(frozen=True)
class Data:
    """The mix of sources.

    Attributes:
        sources: at least one.
        title_dropout: share of the passages whose title is left out; drawn once, since the index is fixed.
        size_exponent: 1 draws sources by size, 0.5 by its square root, 0 evenly.
        one_source: share of the steps whose batch, negatives and corpus statistics come from one source alone.
    """

    sources: tuple[Source, ...]
    title_dropout: float = 0.5
    size_exponent: float = 0.5
    one_source: float = 0.7


@dataclass(frozen=True)
class Model:
    """The encoder's shape where it differs from the base model's.

    Attributes:
        head: "layernorm" (the authors') or "mlm" (one more layer and a bias for each token).
        logit_bias: added to every vocabulary logit at the start of training; only for a base without a head.
        layers: keep only so many of the base's layers, evenly spaced.
        shared_encoder: one set of weights for both sides.
        dropout: on embeddings and sublayer outputs.
        max_active_dims: of the finished model.
        binary_active_dims: of its queries in binary beta search; None: as in every other search.
        binary_layers: train nothing but so many last layers that queries of binary beta search get for themselves;
            everything else stays the base's, whatever this section says of it beside the dropout.
        max_length: tokens read at once, special ones included, in training and by the finished model.
    """

    head: Literal["layernorm", "mlm"] = "layernorm"
    logit_bias: float = -4.0
    layers: int | None = None
    shared_encoder: bool = True
    dropout: float = 0.05
    max_active_dims: PerSide = field(default_factory=lambda: PerSide(64, 256))
    binary_active_dims: int | None = None
    binary_layers: int = 0
    max_length: PerSide = field(default_factory=lambda: PerSide(64, 256))


@dataclass(frozen=True)
class Term:
    """One contrastive term of the loss.

    Attributes:
        weight: its factor in the sum; 0 switches it off.
        temperature: its scores are divided by it; "auto" takes a third of the standard deviation of the first
            batch's non-matching scores, and keeps it.
        directions: "query" (find the passage), "passage" (find the query), or "both".
        active_dims: "query_bot" alone: of `steps.active_dims`, the heaviest so many count; None lets all of them.
    """

    weight: float = 1.0
    temperature: float | Literal["auto"] = "auto"
    directions: Directions = "both"
    active_dims: int | None = None


@dataclass(frozen=True)
class Retrieval:
    """In-training retrieval over the fixed index (section 3.5 of the paper).

    Attributes:
        m: how many passages the current query vectors fetch; 0 switches retrieval off.
        bags: how many of them join the bag-of-tokens terms as negatives.
        random_bags: random passages of the corpus that also join those terms.
        negatives: hard negatives for each query whose passages are encoded.
        margin: without answer strings, a passage is a negative if the teacher's score is below the positive's by at
            least so much; 0 takes every passage that the teacher puts below the positive.
        active_dims: active dimensions of the query vectors that search.
    """

    m: int = 20
    bags: int = 20
    random_bags: int = 4096
    negatives: int = 1
    margin: float = 0.0
    active_dims: int = 64


@dataclass(frozen=True)
class Corpus:
    """The corpus-weighted beta score; the start values of `sidr_rag.search.Weighting`.

    Attributes:
        start: the constants at the first step.
        learned: whether training moves gains, exponents and blend.
    """

    start: Weighting = field(default_factory=lambda: Weighting((1, 2, 4), (1.0, 0.35, 0.25), 1.0, 0.5, 0.4, 0.15))
    learned: bool = True


@dataclass(frozen=True)
class DenseTeacher:
    """A bi-encoder; its vectors have length 1.

    Attributes:
        model: a BERT.
        max_length: tokens read of a text.
        pooling: "mean" of the last hidden states, or the first one ("cls").
    """

    model: Path
    max_length: int = 256
    pooling: Literal["mean", "cls"] = "mean"


@dataclass(frozen=True)
class CrossTeacher:
    """A cross-encoder that scores each query's candidates once; scores are kept on disk.

    Attributes:
        model: a BERT sequence classifier with one output.
        candidates: passages scored for each query: the positive, and the best of a lexical and a dense search.
        queries: how many queries are scored, spread over the sources by their share of the mix; None for all.
        share: share of the batches that are drawn from these queries alone.
        max_length: tokens of query and passage together.
        temperature: divides the teacher's scores.
    """

    model: Path
    candidates: int = 12
    queries: int | None = None
    share: float = 0.35
    max_length: int = 256
    temperature: float = 2.0


@dataclass(frozen=True)
class Distillation:
    """Learning from teachers' scores.

    Attributes:
        cache: folder of scores and vectors; relative to the configuration's folder.
        dense: the bi-encoder whose vectors of all queries and passages are computed once and kept on disk; it also
            tells false negatives apart.
        guide: a second one, whose cosines teach the terms that encode passages in the place of the first's. It reads
            the texts of each batch as they come, so that a large one need not read every passage first.
        cross: the cross-encoder.
        loss: "kl" (of the distributions over the candidates) or "margin_mse" (of the score differences).
        terms: factor of each student score that learns: "weighted", "query_bot", "full", "weighted_full", "dense",
            "maxsim".
        dense_terms: the same for the dense teacher; candidates are the batch's passages.
        dense_temperature: divides the dense teacher's cosines.
        anchor: factor of 1 - cosine between the dense head's vectors and the dense teacher's.
        candidates: how many of a query's scored candidates are encoded for the terms that encode passages.
    """

    cache: Path
    dense: DenseTeacher | None = None
    guide: DenseTeacher | None = None
    cross: CrossTeacher | None = None
    loss: Literal["kl", "margin_mse"] = "kl"
    terms: dict[TaughtTerm, float] = field(default_factory=lambda: {"weighted": 1.0})
    dense_terms: dict[TaughtTerm, float] = field(default_factory=dict)
    dense_temperature: float = 0.05
    anchor: float = 0.0
    candidates: int = 4


@dataclass(frozen=True)
class Optimizer:
    """AdamW with warm-up and linear decay; the defaults are what taught a small BERT on CPU.

    Attributes:
        learning_rate: of the encoder, at its peak.
        corpus_learning_rate: of the learned constants of the corpus-weighted score.
        weight_decay: of matrices; vectors are not decayed.
        warmup: optimizer steps of linear increase.
        final_share: the learning rate at the end, as a share of its peak.
        clip: largest norm of the gradient.
        average: decay of the running average of the weights that is evaluated and exported; 0 takes the weights.
    """

    learning_rate: float = 5.0e-5
    corpus_learning_rate: float = 2.0e-3
    weight_decay: float = 0.01
    warmup: int = 50
    final_share: float = 0.05
    clip: float = 1.0
    average: float = 0.0


@dataclass(frozen=True)
class Steps:
    """How many optimizer steps, and of which kind.

    Attributes:
        total: optimizer steps.
        beta_batch: queries of a beta step, which encodes no passage.
        full_batch: queries of a full step, which encodes positives and hard negatives.
        beta_per_full: beta steps between two full steps; 0 makes every step full.
        accumulate: batches summed into one optimizer step.
        active_dims: active dimensions of query vectors in the loss (S_topk), united with the query's own tokens.
        passage_active_dims: the same for passages; None lets every dimension count.
    """

    total: int
    beta_batch: int = 64
    full_batch: int = 32
    beta_per_full: int = 4
    accumulate: int = 1
    active_dims: int = 256
    passage_active_dims: int | None = 256


@dataclass(frozen=True)
class Stage:
    """What changes from a step on; learning rate, optimizer and everything else go on as they were.

    Attributes:
        after: optimizer steps before it.
        active_dims: in the place of `steps.active_dims`; None leaves it.
        terms: terms of the loss in the place of those of the same names.
        corpus: in the place of `corpus.start`; None leaves it. Only where `corpus.learned` is false.
    """

    after: int
    active_dims: int | None = None
    terms: dict[str, Term] = field(default_factory=dict)
    corpus: Weighting | None = None


@dataclass(frozen=True)
class DevSet:
    """A judged set that is looked at during training to choose the checkpoint.

    Attributes:
        path: a BEIR folder, or a file of pairs (each query is to find its own passage among the file's).
        split: which qrels of a BEIR folder.
        queries: at most so many, evenly spaced.
    """

    path: Path
    split: str = "dev"
    queries: int | None = 300


@dataclass(frozen=True)
class Dev:
    """Evaluation during training.

    Attributes:
        sets: none switches it off.
        every: optimizer steps between two evaluations.
        choose: the measure whose mean over the sets decides which checkpoint is best.
        late: evaluate the second stage too, with so many candidates of at most `late_queries` queries of each set.
        late_queries: see `late`.
        blend: the first stage's share in the second stage's score, in evaluation and in the finished model.
    """

    sets: tuple[DevSet, ...] = ()
    every: int = 500
    choose: Literal["weighted", "binary", "late"] = "weighted"
    late: int = 0
    late_queries: int = 50
    blend: float = 0.5
