"""Weights into the trainable model from a base folder, and out of it into the library's own model format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.encoder.checkpoint import load_weights
from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.resolve import tokenizer_source
from sidr_rag.encoder.weight_files import open_weights
from sidr_rag.errors import InvalidInputError
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.model import TrainableEncoder
from sidr_rag.train.sections import Model

_BODY_PREFIXES = ("bert_model.", "bert.", "")
_HEAD_NAMES = (
    ("mlm.dense.", "cls.predictions.transform.dense."),
    ("mlm.LayerNorm.", "cls.predictions.transform.LayerNorm."),
    ("mlm.bias", "cls.predictions.bias"),
)
_SIDE_PREFIX = {"query": "encoder_q.", "passage": "encoder_p."}
# Few rows are worth more than the bytes: they stay float32.
_SMALL_ROWS = 8


def model_config(base: Path, wanted: Model, name: str) -> ModelConfig:
    """The configuration of the model to be trained.

    Raises:
        ModelNotFoundError: if `base` is no model folder.
        InvalidInputError: if its body cannot be trained here, or has fewer layers than wanted.
    """
    config = load_config(base)
    if config.bert is None or not config.tied_decoder:
        raise InvalidInputError(
            f"base: {base} is a {config.architecture!r} that cannot be trained here; give a BERT with gelu, absolute "
            "positions and tied word embeddings"
        )
    layers = config.bert.num_hidden_layers if wanted.layers is None else wanted.layers
    if not 1 <= layers <= config.bert.num_hidden_layers:
        raise InvalidInputError(f"model.layers is {layers}; the base has {config.bert.num_hidden_layers} layers")
    if not 0 <= wanted.binary_layers <= layers:
        raise InvalidInputError(f"model.binary_layers is {wanted.binary_layers}; the model has {layers} layers")
    longest = max(wanted.max_length.query, wanted.max_length.passage)
    if longest > config.bert.max_position_embeddings:
        raise InvalidInputError(
            f"model.max_length is {longest}; the base reads at most {config.bert.max_position_embeddings} tokens"
        )
    return replace(
        config,
        name=name,
        layout="sidr",
        head=wanted.head,
        max_active_dims=wanted.max_active_dims,
        binary_active_dims=wanted.binary_active_dims,
        binary_layers=wanted.binary_layers,
        max_length=wanted.max_length,
        shared_encoder=wanted.shared_encoder,
        bert=replace(config.bert, num_hidden_layers=layers),
        head_layer_norm_eps=config.head_layer_norm_eps,
        weighting=None,
        rerank_blend=None,
        reranker=None,
    )


def own_shape(base: Path) -> Model:
    """The settings under which a model stays as it is: its own head, lengths and limits, without dropout.

    But for the layers that its binary queries have of their own, which whatever changes the rest leaves out.
    """
    config = load_config(base)
    return Model(
        head=config.head,
        shared_encoder=config.shared_encoder,
        dropout=0.0,
        max_active_dims=config.max_active_dims,
        binary_active_dims=config.binary_active_dims,
        max_length=config.max_length,
    )


def initial_state(base: Path, config: ModelConfig, side: Side, logit_bias: float) -> dict[str, NDArray[np.float32]]:
    """Neutral name -> f32 array of everything the trainable model of one side holds.

    A base whose head is of the wanted kind keeps it. Else the head is fresh: LayerNorm 1 and 0, the given bias and,
    for "mlm", an orthogonal layer (fixed by its size).
    """
    source = load_config(base)
    assert source.bert is not None
    assert config.bert is not None
    if source.head == config.head and _has_head(base, source):
        weights = dict(load_weights(base, source, side))
        weights.setdefault("logit_bias", np.zeros((), np.float32))
    else:
        weights = _body(base) | _fresh_head(config, logit_bias)
    return _layers_kept(weights, source.bert.num_hidden_layers, config.bert.num_hidden_layers)


def _has_head(base: Path, config: ModelConfig) -> bool:
    with open_weights(base) as files:
        names = files.names()
    return any("cls.predictions.transform" in n if config.head == "mlm" else n.endswith("ln.weight") for n in names)


def _body(base: Path) -> dict[str, NDArray[np.float32]]:
    with open_weights(base) as files:
        names = files.names()
        for prefix in _BODY_PREFIXES:
            if f"{prefix}embeddings.word_embeddings.weight" in names:
                kept = [
                    n
                    for n in names
                    if n.startswith((f"{prefix}embeddings.", f"{prefix}encoder.layer."))
                    and not n.endswith((".scale", "position_ids"))
                ]
                return {n.removeprefix(prefix): _widened(files.tensor(n), n) for n in kept}
        raise InvalidInputError(f"base: {files.location()} holds no BERT: it has no word embeddings")


def _widened(raw: NDArray[Any], name: str) -> NDArray[np.float32]:
    if raw.dtype.kind != "f":
        raise InvalidInputError(f"base: tensor {name!r} is {raw.dtype}; a base without a head must be floating point")
    return np.ascontiguousarray(raw, dtype=np.float32)


def _fresh_head(config: ModelConfig, logit_bias: float) -> dict[str, NDArray[np.float32]]:
    assert config.bert is not None
    width = config.bert.hidden_size
    one, zero = np.ones(width, np.float32), np.zeros(width, np.float32)
    head = {"logit_bias": np.array(logit_bias, dtype=np.float32)}
    if config.head == "layernorm":
        return head | {"ln.weight": one, "ln.bias": zero}
    square = np.random.default_rng(width).normal(size=(width, width))
    # gelu halves a centred signal's spread, roughly; the LayerNorm after it restores the scale.
    dense = np.linalg.qr(square)[0].astype(np.float32)
    return head | {
        "mlm.dense.weight": dense,
        "mlm.dense.bias": zero,
        "mlm.LayerNorm.weight": one,
        "mlm.LayerNorm.bias": zero.copy(),
        "mlm.bias": np.zeros(config.bert.vocab_size, np.float32),
    }


def _layers_kept(weights: dict[str, NDArray[np.float32]], had: int, wanted: int) -> dict[str, NDArray[np.float32]]:
    kept = [round(i * (had - 1) / max(1, wanted - 1)) for i in range(wanted)]
    new_number = {f"encoder.layer.{old}.": f"encoder.layer.{new}." for new, old in enumerate(kept)}
    result = {}
    for name, value in weights.items():
        if not name.startswith("encoder.layer."):
            result[name] = value
            continue
        stem = ".".join(name.split(".")[:3]) + "."
        if stem in new_number:
            result[new_number[stem] + name.removeprefix(stem)] = value
    return result


def load_state(encoder: TrainableEncoder, state: Mapping[str, NDArray[np.float32]]) -> None:
    """Put neutral weights into a trainable encoder; each must be there, and no other."""
    encoder.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})


def quantized(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8[n, m] and f32[n] scales with `matrix[row] ~ int8[row] * scale[row]`, the rounding error least by row."""
    scale = np.abs(matrix).max(axis=1) / 127.0
    scale[scale == 0] = 1.0
    return np.clip(np.rint(matrix / scale[:, None]), -127, 127).astype(np.int8), scale.astype(np.float32)


def save_model(
    folder: Path,
    encoders: Mapping[Side, Mapping[str, NDArray[np.float32]]],
    config: ModelConfig,
    base: Path,
    *,
    dense: bool,
    weighting: Weighting | None = None,
    rerank_blend: float | None = None,
    reranker: str | None = None,
    quantize: bool = True,
) -> None:
    """Write a model folder that `sidr_rag.encoder.load_encoder` reads: safetensors, config.json and tokenizer.json.

    Args:
        folder: made if absent; files of the same names are replaced, each in one step.
        encoders: neutral weights by side; a shared encoder stands under "query" alone.
        config: the model's configuration.
        base: the folder whose tokenizer the model uses.
        dense: whether the dense head has learned something; late search then takes it, else V_theta.
        weighting: the engine's constants for this model.
        rerank_blend: the first stage's share in the late score.
        reranker: the model's own second stage; None for its dense head, or V_theta.
        quantize: matrices as int8 with one scale for each row; False keeps float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, NDArray[Any]] = {}
    for side, weights in encoders.items():
        prefix = "" if config.shared_encoder else _SIDE_PREFIX[side]
        named = {prefix + _stored_name(name): value for name, value in weights.items()}
        tensors |= stored_tensors(named, quantize=quantize)
    save_tensors(folder, tensors)
    described = described_model(config, weighting, rerank_blend, dense=dense, reranker=reranker, quantize=quantize)
    replace_file(folder / "config.json", (json.dumps(described, indent=2) + "\n").encode())
    tokenizer = tokenizer_source(base, config)
    if tokenizer.resolve() != (folder / tokenizer.name).resolve():
        shutil.copyfile(tokenizer, folder / tokenizer.name)


def stored_tensors(weights: Mapping[str, NDArray[np.float32]], *, quantize: bool = True) -> dict[str, NDArray[Any]]:
    """Weights as a file holds them: matrices as int8 with one scale for each row ("NAME.scale"), or float32.

    Raises:
        InvalidInputError: if a number is not finite.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise InvalidInputError(f"weights: {name!r} is not finite; training has diverged, nothing was written")
        if quantize and value.ndim == 2 and len(value) >= _SMALL_ROWS:
            tensors[name], tensors[f"{name}.scale"] = quantized(value)
        else:
            tensors[name] = np.ascontiguousarray(value, dtype=np.float32)
    return tensors


def save_tensors(folder: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a folder's weight file, in one step."""
    from safetensors.numpy import save

    replace_file(folder / "model.safetensors", save(dict(tensors), {"format": "np"}))


def described_model(
    config: ModelConfig,
    weighting: Weighting | None,
    rerank_blend: float | None,
    *,
    dense: bool,
    reranker: str | None,
    quantize: bool,
) -> dict[str, Any]:
    """What config.json says of the model, in the library's own layout."""
    described: dict[str, Any] = {
        "name": config.name,
        "architecture": config.architecture,
        "head": config.head,
        "activation": config.activation,
        "shared_encoder": config.shared_encoder,
        "vocab_offset": config.vocab_offset,
        "max_active_dims": asdict(config.max_active_dims),
        "binary_active_dims": config.binary_active_dims,
        "max_length": asdict(config.max_length),
        "bert": None if config.bert is None else asdict(config.bert),
        "head_layer_norm_eps": config.head_layer_norm_eps,
        "dense": {"pooling": "mean", "normalize": True} if dense else None,
        "weighting": None if weighting is None else weighting.to_mapping(),
        "rerank_blend": rerank_blend,
        "reranker": reranker,
    }
    if quantize:
        described["quantization"] = "int8 per row: weight = int8 * NAME.scale[row]"
    return {key: value for key, value in described.items() if value is not None}


def _stored_name(name: str) -> str:
    for neutral, stored in _HEAD_NAMES:
        if name.startswith(neutral):
            return stored + name.removeprefix(neutral)
    return f"bert_model.{name}" if name.startswith(("embeddings.", "encoder.")) else name


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step: whoever reads it sees the old content or the new, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
