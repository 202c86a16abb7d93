"""Training the last layers that queries of binary beta search have for themselves, over a model that stays as it is.

Binary search wants other weights of a query than the searches that add idf, counts and V_theta of passages to them. The
layers below, the passages' side and both heads are frozen, so a step encodes queries alone and nothing else changes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sidr_rag.encoder.checkpoint import BINARY_PREFIX, load_binary_layers, load_weights
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.resolve import tokenizer_source
from sidr_rag.encoder.weight_files import open_weights
from sidr_rag.errors import InvalidInputError
from sidr_rag.train.sections import Model
from sidr_rag.train.weights_io import own_shape, replace_file, save_tensors, stored_tensors

_HEAD = ("ln.", "mlm.dense.", "mlm.LayerNorm.", "logit_bias")
_SIDE = "encoder_q."


def binary_shape(base: Path, wanted: Model) -> Model:
    """The base's own shape, with the dropout and the number of binary layers that are wanted.

    Raises:
        ModelNotFoundError: if `base` is no model folder.
        InvalidInputError: if it is not in the library's own layout.
    """
    layout = load_config(base).layout
    if layout != "sidr":
        raise InvalidInputError(
            f"model.binary_layers is {wanted.binary_layers}, but base {base} is of layout {layout!r}; give a folder "
            "that training wrote"
        )
    return replace(own_shape(base), dropout=wanted.dropout, binary_layers=wanted.binary_layers)


def binary_state(base: Path, binary_layers: int | None = None) -> dict[str, NDArray[np.float32]]:
    """Neutral name -> f32 array of the encoder that reads queries of binary beta search.

    Args:
        base: a model in the library's own layout.
        binary_layers: take at most so many last layers of the base's own for them, as a run that trains so many has to;
            None takes all.
    """
    config = load_config(base)
    own = load_binary_layers(base, config)
    if binary_layers is not None and config.bert is not None:
        n_layers = config.bert.num_hidden_layers
        own = {name: value for name, value in own.items() if is_own(name, n_layers, binary_layers)}
    weights = {**load_weights(base, config, "query"), **own}
    weights.setdefault("logit_bias", np.zeros((), np.float32))
    return weights


def is_own(name: str, n_layers: int, binary_layers: int) -> bool:
    """Whether a neutral name is of what binary queries have for themselves: the last layers and the head's vectors."""
    last = tuple(f"encoder.layer.{i}." for i in range(n_layers - binary_layers, n_layers))
    return name.startswith((*last, *_HEAD))


def train_own_alone(module: nn.Module, encoder: nn.Module, n_layers: int, binary_layers: int) -> None:
    """Freeze every parameter of a module but those of its encoder for which `is_own` holds."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(is_own(name, n_layers, binary_layers))


def same_rest(models: Sequence[Path]) -> bool:
    """Whether the files of some models hold the same but for the layers of binary queries."""
    first = _rest(models[0])
    others = [_rest(model) for model in models[1:]]
    return all(
        first.keys() == other.keys() and all(np.array_equal(first[name], other[name]) for name in first)
        for other in others
    )


def _rest(model: Path) -> dict[str, NDArray[Any]]:
    """Every tensor of a model as its files hold it, without the layers of binary queries."""
    left_out = (BINARY_PREFIX, f"{_SIDE}{BINARY_PREFIX}")
    with open_weights(model) as files:
        return {name: files.tensor(name) for name in sorted(files.names()) if not name.startswith(left_out)}


def save_binary_layers(
    folder: Path, base: Path, state: Mapping[str, NDArray[np.float32]], binary_layers: int, name: str
) -> None:
    """Write the base model, every weight and setting as it is, with layers of binary queries beside it.

    Args:
        folder: made if absent; a model in it is replaced, each file in one step.
        base: a model in the library's own layout; such layers that it has are left out.
        state: neutral weights of the encoder that reads binary queries.
        binary_layers: how many of its last layers are its own.
        name: of the model that is written.
    """
    config = load_config(base)
    assert config.bert is not None  # the caller has refused other layouts
    n_layers = config.bert.num_hidden_layers
    tensors = _rest(base)
    prefix = _SIDE if any(stored.startswith(_SIDE) for stored in tensors) else ""
    own = {
        f"{prefix}{BINARY_PREFIX}{key}": value for key, value in state.items() if is_own(key, n_layers, binary_layers)
    }
    tensors |= stored_tensors(own)
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder, tensors)
    described = json.loads((base / "config.json").read_text(encoding="utf-8"))
    described |= {"name": name, "binary_layers": binary_layers}
    replace_file(folder / "config.json", (json.dumps(described, indent=2) + "\n").encode())
    tokenizer = tokenizer_source(base, config)
    if tokenizer.resolve() != (folder / tokenizer.name).resolve():
        shutil.copyfile(tokenizer, folder / tokenizer.name)
