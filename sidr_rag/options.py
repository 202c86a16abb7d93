"""How a store and its model are set up: the options of `SiDR.from_texts` and `SiDR.open`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.index.folder import StoreSettings
from sidr_rag.inputs import as_count
from sidr_rag.rerank.codecs import weight_codec
from sidr_rag.search.beta import check_kernel
from sidr_rag.search.weighting import BINARY, Weighting

WeightingChoice = Literal["default", "binary"] | Weighting
_LEVELS = (1, 2, 4)
_ENCODER_OPTIONS = "backend", "dtype", "max_active_dims", "max_length", "normalization", "sparsify", "truncate"
_SEARCH_OPTIONS = ("cache_bytes", "embedding_precision", "kernel", "num_threads")


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "normalization": "none",
        "truncate": True,
        "max_length": 256,
        "sparsify": "topk",
        "max_active_dims": 768,
    }
}
"""Options by the name of a preset; "paper" is the paper's setting (sections 3.1 and 4.3), with weighting="binary"."""


def with_preset(weighting: WeightingChoice | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Weighting and options with those of `options["preset"]` filled in; what is given beside it counts.

    Args:
        weighting: "default" and None leave the choice to the preset.
        options: as given by the caller; not changed.

    Raises:
        InvalidInputError: for an unknown preset; names those there are.
    """
    rest = {name: value for name, value in options.items() if name != "preset"}
    preset = options.get("preset")
    if preset is None:
        return weighting, rest
    if preset not in PRESETS:
        raise InvalidInputError(f"preset={preset!r} is not known; choose one of {', '.join(map(repr, PRESETS))}")
    chosen = "binary" if weighting in ("default", None) else weighting
    return chosen, {**PRESETS[preset], **rest}


def split_options(model: str | Path, device: str, options: dict[str, Any]) -> tuple[Encoder, dict[str, Any]]:
    """The encoder that the options ask for, and the options that belong to the search.

    Raises:
        InvalidTypeError: for an unknown option; names it and the known ones.
        InvalidInputError: for a value that cannot be used, or a CUDA device that is not there.
        MissingExtraError: if an option needs a package that is absent.
    """
    unknown = sorted(set(options) - {*_ENCODER_OPTIONS, *_SEARCH_OPTIONS})
    if unknown:
        known = ", ".join(sorted((*_ENCODER_OPTIONS, *_SEARCH_OPTIONS)))
        raise InvalidTypeError(f"unknown options {', '.join(map(repr, unknown))}; known are {known}")
    search = {name: value for name, value in options.items() if name in _SEARCH_OPTIONS}
    if search.get("num_threads") is not None:
        as_count("num_threads", search["num_threads"], least=1)
    if "cache_bytes" in search:
        as_count("cache_bytes", search["cache_bytes"])
    weight_codec(search.get("embedding_precision", "float16"))
    check_kernel(search.get("kernel", "auto"), device)
    own = {name: value for name, value in options.items() if name in _ENCODER_OPTIONS}
    encoder = load_encoder(model, device=device, **own)
    if device.startswith("cuda"):
        from sidr_rag.encoder.torch_body import torch_device

        torch_device(device)  # a card that is not there is noticed before anything is indexed
    return encoder, search


def resolve_weighting(choice: WeightingChoice, encoder: Encoder) -> Weighting:
    """The constants that a choice stands for; "default" is the model's own, or the paper's where it has none."""
    if isinstance(choice, Weighting):
        return choice
    if choice == "binary":
        return BINARY
    if choice == "default":
        return Weighting.from_mapping(encoder.config.weighting) if encoder.config.weighting else BINARY
    raise InvalidInputError(f"weighting={choice!r} is not known; choose 'default', 'binary' or a Weighting")


def new_settings(choice: WeightingChoice, encoder: Encoder) -> StoreSettings:
    """What a new store keeps: three levels, so that weightings can change later; one for "binary" alone."""
    tokenizer = encoder.tokenizer
    weighting = resolve_weighting(choice, encoder)
    levels = (1,) if choice == "binary" else tuple(sorted({*weighting.levels, *_LEVELS}))
    options = {"weighting": choice.to_mapping() if isinstance(choice, Weighting) else choice}
    return StoreSettings(tokenizer.vocabulary.dim, levels, tokenizer.fingerprint, tokenizer.normalization, options)


def stored_weighting(settings: StoreSettings) -> WeightingChoice:
    """The choice that a store was made with."""
    kept = settings.options.get("weighting", "default")
    if isinstance(kept, dict):
        return Weighting.from_mapping(kept)
    return "binary" if kept == "binary" else "default"
