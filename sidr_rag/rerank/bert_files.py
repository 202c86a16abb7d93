"""Reads other models' BERT: its body from a folder in Hugging Face's layout, with the tensors of a head beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import BertSizes
from sidr_rag.encoder.weight_files import WeightFiles, open_weights
from sidr_rag.errors import InvalidInputError, ModelNotFoundError

_SIZES = tuple(BertSizes.__dataclass_fields__)
# DPR's checkpoints, classifiers and plain models wrap the same body in these names.
_PREFIXES = ("", "bert.", "question_encoder.bert_model.", "ctx_encoder.bert_model.", "bert_model.")
_LAYER_PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


def read_config(folder: Path) -> Mapping[str, Any]:
    """`folder/config.json`.

    Raises:
        ModelNotFoundError: if there is none.
        InvalidInputError: if it is no JSON object.
    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotFoundError(f"model: {path} does not exist, so {folder} is no model folder") from None
    except ValueError as error:
        raise InvalidInputError(f"model: {path} is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise InvalidInputError(f"model: {path} holds a {type(values).__name__}; expected a JSON object")
    return values


def bert_sizes(config: Mapping[str, Any]) -> BertSizes | None:
    """The body's shape, or None where it is no BERT that our own code runs."""
    kind = config.get("model_type", "bert")
    absolute = config.get("position_embedding_type") in (None, "absolute")
    if kind not in ("bert", "dpr") or not absolute or config.get("hidden_act", "gelu") != "gelu":
        return None
    return BertSizes(**{name: config[name] for name in _SIZES if name in config})


def read_bert(folder: Path, sizes: BertSizes, head: Sequence[str] = ()) -> dict[str, NDArray[np.float32]]:
    """The body's weights under neutral names (see `sidr_rag.encoder.checkpoint`), and those of a head.

    Matrices may be 8-bit with `NAME.scale`, one for each row or for all, and `NAME.zero_point`.

    Args:
        folder: the model folder.
        sizes: the body's shape.
        head: names of tensors that are read beside the body, with the body's prefix or without.

    Raises:
        ModelNotFoundError: if the folder holds no weights.
        InvalidInputError: if a tensor is missing or has the wrong shape.
    """
    with open_weights(folder) as files:
        names = files.names()
        first = "embeddings.word_embeddings.weight"
        prefix = next((p for p in _PREFIXES if p + first in names), None)
        if prefix is None:
            raise InvalidInputError(
                f"model: {files.location()} holds no BERT: {first!r} is absent under any known prefix"
            )
        weights = {name: _plain(files, prefix, name) for name in _body_names(sizes)}
        weights.update((name, _plain(files, "" if name in names else prefix, name)) for name in head)
    if weights[first].shape != (sizes.vocab_size, sizes.hidden_size):
        raise InvalidInputError(
            f"model: {folder} has word embeddings of shape {weights[first].shape}; config.json calls for "
            f"{(sizes.vocab_size, sizes.hidden_size)}"
        )
    return weights


def _body_names(sizes: BertSizes) -> list[str]:
    kinds = ("word", "position", "token_type")
    names = [f"embeddings.{kind}_embeddings.weight" for kind in kinds]
    parts = ["embeddings.LayerNorm"]
    parts += [f"encoder.layer.{i}.{part}" for i in range(sizes.num_hidden_layers) for part in _LAYER_PARTS]
    return names + [f"{part}.{kind}" for part in parts for kind in ("weight", "bias")]


def _plain(files: WeightFiles, prefix: str, name: str) -> NDArray[np.float32]:
    names, own = files.names(), prefix + name
    if own not in names:  # the names of TensorFlow's days
        own = own.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    if own not in names:
        raise InvalidInputError(f"model: {files.location()} lacks the tensor {prefix + name!r}")
    value = np.asarray(files.tensor(own))
    if f"{own}.scale" not in names:
        return np.ascontiguousarray(value, dtype=np.float32)
    plain = value.astype(np.float32)
    if f"{own}.zero_point" in names:
        plain -= files.tensor(f"{own}.zero_point").astype(np.float32)
    scale = files.tensor(f"{own}.scale").astype(np.float32)
    plain *= scale.reshape(-1, *[1] * (plain.ndim - 1)) if scale.size > 1 else scale.reshape(())
    return plain
