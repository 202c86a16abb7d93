"""What is to be known about a model before its weights are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Literal["query", "passage"]
Head = Literal["layernorm", "mlm"]
Activation = Literal["elu1p", "log1p_relu"]
Layout = Literal["sidr", "authors", "huggingface"]
Pooling = Literal["mean", "cls"]
_OTHERS = (
    "name",
    "weighting",
    "binary_active_dims",
    "binary_layers",
    "rerank_blend",
    "base_model",
    "dense",
    "reranker",
)  # what V_theta of passages does not depend on
RERANKERS = ("theta", "dense", "maxsim", "both", "all")


@dataclass(frozen=True)
class PerSide:
    """One number for queries and one for passages."""

    query: int
    passage: int

    def __getitem__(self, side: Side) -> int:
        return self.query if side == "query" else self.passage


@dataclass(frozen=True)
class BertSizes:
    """The shape of a BERT; the defaults are bert-base-uncased's."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    vocab_size: int = 30522
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"


@dataclass(frozen=True)
class DenseHead:
    """A second head on the same body: one dense vector for each text.

    Attributes:
        pooling: "mean" of the last hidden states, or the first one ("cls").
        normalize: whether vectors are scaled to length 1.
    """

    pooling: Pooling = "mean"
    normalize: bool = True


@dataclass(frozen=True)
class ModelConfig:
    """A model's description.

    Attributes:
        name: for people; part of no computation.
        layout: which naming the weight files follow.
        architecture: the body: "bert", or another Hugging Face `model_type`, which only transformers can run.
        head: "layernorm" (one LayerNorm, then the word embeddings) or "mlm" (the masked-LM head).
        activation: "elu1p" or "log1p_relu".
        vocab_offset: first token id that is a dimension; None leaves the choice to the tokenizer.
        max_active_dims: k of the top-k sparsification.
        max_length: tokens the encoder reads at once, [CLS] and [SEP] included.
        shared_encoder: one set of weights serves both sides.
        bert: sizes of the body; None where `architecture` is not "bert".
        tied_decoder: the masked-LM decoder is the word embeddings.
        head_layer_norm_eps: epsilon of the head's LayerNorm.
        base_model: the model whose tokenizer the checkpoint uses when its folder has none.
        weighting: how the engine weighs levels and tokens; passed through untouched.
        binary_active_dims: k of V_theta(q) in beta search with the binary weighting; None takes `max_active_dims`.
        binary_layers: how many of the last layers, with the vectors of the head, queries of binary beta search have of
            their own ("binary.*" among the weights); 0 for none.
        rerank_blend: the first stage's share in the late score; passed through untouched.
        dense: the dense head, if the model was trained with one; then the model's own way of re-ranking.
        reranker: another way of its own: one of `RERANKERS`; passed through untouched.
    """

    name: str
    layout: Layout
    architecture: str
    head: Head
    activation: Activation
    vocab_offset: int | None
    max_active_dims: PerSide
    max_length: PerSide
    shared_encoder: bool
    bert: BertSizes | None
    tied_decoder: bool = True
    head_layer_norm_eps: float = 1e-12
    base_model: str | None = None
    weighting: Mapping[str, Any] | None = None
    binary_active_dims: int | None = None
    binary_layers: int = 0
    rerank_blend: float | None = None
    dense: DenseHead | None = None
    reranker: str | None = None

    @property
    def native(self) -> bool:
        """Whether our own BERT can run it, so that neither transformers nor torch is needed."""
        return self.bert is not None

    def identity(self) -> str:
        """Canonical JSON of everything that decides V_theta's values: part of the encoder's fingerprint."""
        described = asdict(self)
        for key in _OTHERS:
            del described[key]
        return json.dumps(described, sort_keys=True)
