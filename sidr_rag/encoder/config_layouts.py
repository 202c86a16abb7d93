"""Reads a model folder's config.json, whichever of the three known layouts wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from sidr_rag.encoder.config import (
    RERANKERS,
    Activation,
    BertSizes,
    DenseHead,
    Head,
    ModelConfig,
    PerSide,
    Pooling,
)
from sidr_rag.errors import InvalidInputError, ModelNotFoundError

DEFAULT_ACTIVE_DIMS = 768  # the paper's k
MAX_WINDOW = 512
BERT_MODEL_TYPE = "bert"

_BY_DENSE = ("dense", "both", "all")
_AUTHORS_HEAD_EPS = 1e-5  # torch's default, not the body's; the golden values show it

# Position tables of these families start after the padding id.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer", "data2vec-text"}


def load_config(folder: Path, name: str | None = None) -> ModelConfig:
    """Read `folder/config.json`.

    Args:
        folder: the model folder.
        name: what to call the model if the file does not say; the folder's name by default.

    Raises:
        ModelNotFoundError: if the folder has no config.json.
        InvalidInputError: if the file is not one of the known layouts, or a value cannot be used.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotFoundError(f"model: {path} does not exist, so {folder} is no model folder") from None
    except ValueError as error:
        raise InvalidInputError(f"model: {path} is not JSON ({error})") from None
    if not isinstance(raw, dict):
        raise InvalidInputError(f"model: {path} holds a {type(raw).__name__}; expected a JSON object")
    source = _Source(path, raw, name or folder.name)
    if "encoder_q" in raw or "encoder_p" in raw:
        return _authors(source)
    if isinstance(raw.get("bert"), dict):
        return _sidr(source)
    if "model_type" in raw or "architectures" in raw:
        return _huggingface(source, folder)
    raise InvalidInputError(
        f"model: {path} follows no known layout; expected 'bert' (sidr-rag), 'encoder_q' and 'encoder_p' "
        "(the authors' checkpoints) or 'model_type' (Hugging Face)"
    )


@dataclass(frozen=True)
class _Source:
    """A JSON object and the file it came from, so that every complaint can name both."""

    path: Path
    values: Mapping[str, Any]
    name: str

    def child(self, key: str) -> _Source:
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise self.fault(key, value, "a JSON object")
        return _Source(self.path, value, self.name)

    def fault(self, key: str, value: Any, expected: str) -> InvalidInputError:
        return InvalidInputError(f"model: {self.path}: {key!r} is {value!r}; expected {expected}")

    def integer(self, key: str, default: int, minimum: int = 1) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.fault(key, value, f"an integer of at least {minimum}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise self.fault(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(key, value, "true or false")
        return value

    def choice(self, key: str, default: str, allowed: tuple[Any, ...]) -> str:
        value = self.values.get(key)
        if value is None:
            return default
        if value not in allowed:
            raise self.fault(key, value, " or ".join(map(repr, allowed)))
        return str(value)

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None

    def offset(self, key: str) -> int | None:
        return None if self.values.get(key) is None else self.integer(key, 0, minimum=0)

    def per_side(self, key: str, default: int) -> PerSide:
        value = self.values.get(key)
        if isinstance(value, Mapping):
            both = _Source(self.path, value, self.name)
            return PerSide(both.integer("query", default), both.integer("passage", default))
        single = self.integer(key, default)
        return PerSide(single, single)

    def bert(self) -> BertSizes:
        base = BertSizes()
        sizes = BertSizes(
            hidden_size=self.integer("hidden_size", base.hidden_size),
            num_hidden_layers=self.integer("num_hidden_layers", base.num_hidden_layers),
            num_attention_heads=self.integer("num_attention_heads", base.num_attention_heads),
            intermediate_size=self.integer("intermediate_size", base.intermediate_size),
            max_position_embeddings=self.integer("max_position_embeddings", base.max_position_embeddings),
            vocab_size=self.integer("vocab_size", base.vocab_size),
            type_vocab_size=self.integer("type_vocab_size", base.type_vocab_size),
            layer_norm_eps=self.number("layer_norm_eps", base.layer_norm_eps),
            hidden_act=self.text("hidden_act") or base.hidden_act,
        )
        if sizes.hidden_size % sizes.num_attention_heads:
            raise self.fault("hidden_size", sizes.hidden_size, f"a multiple of {sizes.num_attention_heads} heads")
        return sizes


def _own_bert(source: _Source) -> BertSizes:
    sizes = source.bert()
    if sizes.hidden_act != "gelu":
        raise source.fault("hidden_act", sizes.hidden_act, "'gelu'")
    return sizes


def _capped(length: int, sizes: BertSizes) -> int:
    return min(length, sizes.max_position_embeddings, MAX_WINDOW)


def _sidr(source: _Source) -> ModelConfig:
    sizes = _own_bert(source.child("bert"))
    architecture = source.text("architecture") or BERT_MODEL_TYPE
    if architecture != BERT_MODEL_TYPE:
        raise source.fault("architecture", architecture, repr(BERT_MODEL_TYPE))
    length = source.per_side("max_length", MAX_WINDOW)
    weighting = source.values.get("weighting")
    if weighting is not None and not isinstance(weighting, Mapping):
        raise source.fault("weighting", weighting, "a JSON object")
    blend = source.values.get("rerank_blend")
    if blend is not None and (not isinstance(blend, (int, float)) or isinstance(blend, bool)):
        raise source.fault("rerank_blend", blend, "a number")
    binary_dims = source.values.get("binary_active_dims")
    if binary_dims is not None and (type(binary_dims) is not int or binary_dims < 1):
        raise source.fault("binary_active_dims", binary_dims, "a positive integer")
    dense, reranker = _dense_head(source), source.values.get("reranker")
    if reranker is not None and (reranker not in RERANKERS or (dense is None and reranker in _BY_DENSE)):
        raise source.fault("reranker", reranker, f"one of {', '.join(RERANKERS)} that the model's heads allow")
    return ModelConfig(
        name=source.text("name") or source.name,
        layout="sidr",
        architecture=architecture,
        head=cast(Head, source.choice("head", "layernorm", get_args(Head))),
        activation=cast(Activation, source.choice("activation", "elu1p", get_args(Activation))),
        vocab_offset=source.offset("vocab_offset"),
        max_active_dims=source.per_side("max_active_dims", DEFAULT_ACTIVE_DIMS),
        max_length=PerSide(_capped(length.query, sizes), _capped(length.passage, sizes)),
        shared_encoder=source.flag("shared_encoder", True),
        bert=sizes,
        tied_decoder=source.flag("tie_word_embeddings", True),
        head_layer_norm_eps=source.number("head_layer_norm_eps", sizes.layer_norm_eps),
        base_model=source.text("base_model"),
        weighting=weighting,
        binary_active_dims=binary_dims,
        binary_layers=_binary_layers(source, sizes),
        rerank_blend=None if blend is None else float(blend),
        dense=dense,
        reranker=reranker,
    )


def _binary_layers(source: _Source, sizes: BertSizes) -> int:
    layers = source.integer("binary_layers", 0, minimum=0)
    if layers > sizes.num_hidden_layers:
        raise source.fault("binary_layers", layers, f"at most the model's {sizes.num_hidden_layers} layers")
    return layers


def _dense_head(source: _Source) -> DenseHead | None:
    if source.values.get("dense") is None:
        return None
    head = source.child("dense")
    pooling = cast(Pooling, head.choice("pooling", "mean", get_args(Pooling)))
    return DenseHead(pooling, head.flag("normalize", True))


def _authors(source: _Source) -> ModelConfig:
    query, passage = source.child("encoder_q"), source.child("encoder_p")
    sizes = _own_bert(query)
    if _own_bert(passage) != sizes:
        raise InvalidInputError(
            f"model: {source.path}: encoder_q and encoder_p describe bodies of different sizes; expected equal sizes"
        )
    for side in (query, passage):
        side.choice("pooling", "max", ("max",))
        if side.values.get("pooling_topk") is not None:
            raise side.fault("pooling_topk", side.values["pooling_topk"], "null")
        if side.flag("norm", False):
            raise side.fault("norm", True, "false: normalised vectors are not supported")
    offset = query.offset("shift_vocab_num")
    if passage.offset("shift_vocab_num") != offset:
        raise passage.fault("shift_vocab_num", passage.values.get("shift_vocab_num"), f"encoder_q's {offset}")
    return ModelConfig(
        name=source.text("name") or source.name,
        layout="authors",
        architecture=BERT_MODEL_TYPE,
        head="layernorm",
        activation="elu1p",
        vocab_offset=offset,
        max_active_dims=PerSide(
            query.integer("topk", DEFAULT_ACTIVE_DIMS), passage.integer("topk", DEFAULT_ACTIVE_DIMS)
        ),
        max_length=PerSide(
            _capped(query.integer("max_len", MAX_WINDOW), sizes), _capped(passage.integer("max_len", MAX_WINDOW), sizes)
        ),
        shared_encoder=source.flag("shared_encoder", False),
        bert=sizes,
        head_layer_norm_eps=_AUTHORS_HEAD_EPS,
        base_model=query.text("model_id"),
    )


def _huggingface(source: _Source, folder: Path) -> ModelConfig:
    model_type = source.text("model_type")
    if model_type is None:
        architectures = source.values.get("architectures")
        first = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
        if not first.startswith("Bert"):
            raise source.fault("model_type", None, "the architecture's name, such as 'bert'")
        model_type = BERT_MODEL_TYPE
    absolute = source.values.get("position_embedding_type") in (None, "absolute")
    native = model_type == BERT_MODEL_TYPE and absolute and source.values.get("hidden_act", "gelu") == "gelu"
    sizes = source.bert() if native else None
    positions = source.integer("max_position_embeddings", MAX_WINDOW)
    if model_type in _OFFSET_POSITIONS:
        positions = max(1, positions - source.integer("pad_token_id", 1, minimum=0) - 1)
    window = min(positions, MAX_WINDOW)
    # A plain number under this name is a setting for text generation, of no concern here.
    limited = isinstance(source.values.get("max_length"), Mapping)
    length = source.per_side("max_length", window) if limited else PerSide(window, window)
    return ModelConfig(
        name=source.text("name") or source.name,
        layout="huggingface",
        architecture=model_type,
        head="mlm",
        activation=_huggingface_activation(source, folder),
        vocab_offset=source.offset("vocab_offset"),
        max_active_dims=source.per_side("max_active_dims", DEFAULT_ACTIVE_DIMS),
        max_length=PerSide(min(length.query, window), min(length.passage, window)),
        shared_encoder=True,
        bert=sizes,
        tied_decoder=source.flag("tie_word_embeddings", True),
        head_layer_norm_eps=sizes.layer_norm_eps if sizes else 1e-12,
        base_model=source.text("_name_or_path"),
    )


def _huggingface_activation(source: _Source, folder: Path) -> Activation:
    """An "activation" of ours wins; SPLADE checkpoints are known by their pooling module or their name."""
    # DistilBERT uses the same key for its body's activation ("gelu"), so other values are none of our business.
    if source.values.get("activation") in get_args(Activation):
        return cast(Activation, source.values["activation"])
    for pooling in sorted(folder.glob("*_SpladePooling/config.json")):
        try:
            function = json.loads(pooling.read_text(encoding="utf-8")).get("activation_function", "relu")
        except (ValueError, AttributeError):
            raise InvalidInputError(f"model: {pooling} is not a JSON object") from None
        if function != "relu":
            raise InvalidInputError(f"model: {pooling}: 'activation_function' is {function!r}; expected 'relu'")
        return "log1p_relu"
    named = f"{source.name} {source.text('_name_or_path') or ''}".lower()
    return "log1p_relu" if "splade" in named else "elu1p"
