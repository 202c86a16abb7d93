"""From weight files to one neutral set of float32 arrays, whichever layout they follow; nothing in them is executed.

Neutral names are Hugging Face's of `BertModel` ("embeddings.*", "encoder.layer.N.*"), then the head: "ln.*" (the
`layernorm` head), or "mlm.dense.*", "mlm.LayerNorm.*", "mlm.bias" and, where untied, "mlm.decoder.weight"; and the
optional "logit_bias". What binary beta's queries have of their own has "binary." before the name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import BertSizes, ModelConfig, Side
from sidr_rag.encoder.weight_files import WeightFiles, open_weights, weight_paths
from sidr_rag.errors import InvalidInputError

Weights = Mapping[str, NDArray[np.float32]]

_SIDE_PREFIX = {"query": "encoder_q.", "passage": "encoder_p."}
_RENAMES = (
    ("bert_model.", ""),
    ("bert.", ""),
    ("cls.predictions.transform.dense.", "mlm.dense."),
    ("cls.predictions.transform.LayerNorm.", "mlm.LayerNorm."),
    ("cls.predictions.decoder.", "mlm.decoder."),
    ("cls.predictions.bias", "mlm.bias"),
    ("ln.", "ln."),
    ("logit_bias", "logit_bias"),
    ("binary.", "binary."),
)
BINARY_PREFIX = "binary."
"""Before the names of what queries of binary beta search have of their own."""
_DEQUANTIZE_ROWS = 1024


def load_weights(folder: Path, config: ModelConfig, side: Side) -> Weights:
    """The weights of one side of a BERT, checked against the configuration.

    Args:
        folder: the model folder.
        config: its configuration; `config.native` must hold.
        side: "query" or "passage"; with a shared encoder both give the same arrays.

    Returns:
        neutral name -> f32 array, C-contiguous.

    Raises:
        ModelNotFoundError: if the folder holds no weights.
        InvalidInputError: if a file is damaged, or a tensor is missing or has the wrong shape or type.
    """
    sizes = _native_sizes(config)
    with open_weights(folder) as files:
        sources = _sources(files, config, side)
        return _checked(files, sources, _expected(config, sizes, sources), config, side)


def load_binary_layers(folder: Path, config: ModelConfig) -> Weights:
    """What queries of binary beta search have of their own: neutral names as in `load_weights`, which they replace.

    Args:
        folder: the model folder.
        config: its configuration; `config.native` must hold.

    Returns:
        empty where `config.binary_layers` is 0.

    Raises:
        ModelNotFoundError, InvalidInputError: as `load_weights`.
    """
    sizes = _native_sizes(config)
    if not config.binary_layers:
        return {}
    with open_weights(folder) as files:
        sources = _sources(files, config, "query")
        shapes = {f"{BINARY_PREFIX}{name}": shape for name, shape in _head_vectors(config, sizes.hidden_size).items()}
        for i in range(sizes.num_hidden_layers - config.binary_layers, sizes.num_hidden_layers):
            shapes |= _layer(f"{BINARY_PREFIX}encoder.layer.{i}", sizes)
        if f"{BINARY_PREFIX}logit_bias" in sources:
            shapes[f"{BINARY_PREFIX}logit_bias"] = ()
        weights = _checked(files, sources, shapes, config, "query")
    return {name.removeprefix(BINARY_PREFIX): value for name, value in weights.items()}


def _native_sizes(config: ModelConfig) -> BertSizes:
    if config.bert is None:
        raise InvalidInputError(f"model: a {config.architecture!r} is read by transformers, not tensor by tensor")
    return config.bert


def _checked(
    files: WeightFiles,
    sources: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    config: ModelConfig,
    side: Side,
) -> dict[str, NDArray[np.float32]]:
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        if name not in sources:
            raise InvalidInputError(
                f"model: {files.location()} lacks the tensor {_described(name)} of the {side} encoder; "
                f"the configuration calls for it (head {config.head!r})"
            )
        weights[name] = _read(files, sources[name], shape)
    return weights


def checkpoint_digest(folder: Path) -> str:
    """SHA-256 (hex) over the bytes of the weight files, in order of name: which weights these are.

    Raises:
        ModelNotFoundError: if the folder holds no weights.
    """
    digest = hashlib.sha256()
    for path in weight_paths(folder):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _sources(files: WeightFiles, config: ModelConfig, side: Side) -> dict[str, str]:
    """Neutral name -> name in the files, for one side."""
    names = files.names()
    prefix = _SIDE_PREFIX[side]
    # Saving drops the second name of a shared tensor, so a shared encoder may stand under either prefix.
    order = ("encoder_q.", "encoder_p.", "") if config.shared_encoder else (prefix, "")
    for candidate in order:
        found = {
            neutral: name
            for name in names
            if name.startswith(candidate) and (neutral := _neutral(name[len(candidate) :])) is not None
        }
        if found:
            # Files may hold the bias under two names; an untied decoder computes with its own.
            if "mlm.decoder.bias" in found and (not config.tied_decoder or "mlm.bias" not in found):
                found["mlm.bias"] = found["mlm.decoder.bias"]
            return found
    expected = "encoder_q.* or encoder_p.*" if config.shared_encoder else f"{prefix}*"
    raise InvalidInputError(f"model: {files.location()} has no tensors of the {side} encoder ({expected}, bert.*)")


def _neutral(name: str) -> str | None:
    if name.endswith(".scale"):
        return None
    for old, new in _RENAMES:
        if name.startswith(old):
            renamed = new + name[len(old) :]
            renamed = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", renamed)
            return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", renamed)
    return None


def _described(name: str) -> str:
    """The tensor's name with what it is called in the files, for whoever has to look for it."""
    for old, new in _RENAMES[2:6]:
        if new and name.startswith(new):
            return f"{name!r} ({old + name[len(new) :]})"
    return repr(name)


def _expected(config: ModelConfig, sizes: BertSizes, sources: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    hidden, vocab = sizes.hidden_size, sizes.vocab_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocab, hidden),
        "embeddings.position_embeddings.weight": (sizes.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": (sizes.type_vocab_size, hidden),
        **_layer_norm("embeddings.LayerNorm", hidden),
    }
    for i in range(sizes.num_hidden_layers):
        shapes |= _layer(f"encoder.layer.{i}", sizes)
    shapes |= _head_vectors(config, hidden)
    if config.head == "mlm":
        shapes["mlm.bias"] = (vocab,)
        if not config.tied_decoder:
            shapes["mlm.decoder.weight"] = (vocab, hidden)
    if "logit_bias" in sources:
        shapes["logit_bias"] = ()
    return shapes


def _layer(name: str, sizes: BertSizes) -> dict[str, tuple[int, ...]]:
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes |= _linear(f"{name}.{part}", hidden, hidden)
    shapes |= _layer_norm(f"{name}.attention.output.LayerNorm", hidden)
    shapes |= _linear(f"{name}.intermediate.dense", hidden, inner)
    shapes |= _linear(f"{name}.output.dense", inner, hidden)
    return shapes | _layer_norm(f"{name}.output.LayerNorm", hidden)


def _head_vectors(config: ModelConfig, hidden: int) -> dict[str, tuple[int, ...]]:
    """What comes before the projection."""
    if config.head == "layernorm":
        return _layer_norm("ln", hidden)
    return _linear("mlm.dense", hidden, hidden) | _layer_norm("mlm.LayerNorm", hidden)


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _layer_norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _read(files: WeightFiles, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    raw = files.tensor(name)
    if shape == () and raw.size == 1:
        raw = raw.reshape(())
    if raw.shape != shape:
        raise InvalidInputError(
            f"model: tensor {name!r} in {files.location(name)} has shape {raw.shape}; config.json calls for {shape}"
        )
    if raw.dtype == np.int8:
        return _dequantize(files, name, raw)
    if raw.dtype not in (np.float16, np.float32, np.float64):
        raise InvalidInputError(
            f"model: tensor {name!r} in {files.location(name)} has type {raw.dtype}; expected int8 with a scale, "
            "float16, bfloat16 or float32"
        )
    return np.ascontiguousarray(raw, dtype=np.float32)


def _dequantize(files: WeightFiles, name: str, raw: NDArray[np.int8]) -> NDArray[np.float32]:
    """weight[row] = int8[row] * NAME.scale[row]."""
    scale_name = f"{name}.scale"
    if scale_name not in files.names():
        raise InvalidInputError(f"model: {files.location(name)} lacks {scale_name!r}, which the int8 {name!r} needs")
    scale = np.asarray(files.tensor(scale_name), dtype=np.float32)
    if raw.ndim != 2 or scale.shape != raw.shape[:1]:
        raise InvalidInputError(
            f"model: tensor {scale_name!r} in {files.location(name)} has shape {scale.shape}; expected one value for "
            f"each row of {name!r}, whose shape is {raw.shape}"
        )
    weights = np.empty(raw.shape, dtype=np.float32)
    # Converting and scaling a block while it is in the cache is several times faster than one mixed-type product.
    for start in range(0, len(raw), _DEQUANTIZE_ROWS):
        block = weights[start : start + _DEQUANTIZE_ROWS]
        block[...] = raw[start : start + _DEQUANTIZE_ROWS]
        block *= scale[start : start + _DEQUANTIZE_ROWS, None]
    return weights
