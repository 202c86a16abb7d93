"""What an encoder was asked for, and the checks of such requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np

from sidr_rag.encoder.config import Activation, ModelConfig, PerSide
from sidr_rag.errors import InvalidInputError, InvalidTypeError

SPECIAL_TOKENS = 2  # [CLS] and [SEP]


@dataclass(frozen=True)
class EncoderSettings:
    """What `load_encoder` was asked for; enough to make the same encoder again in another process."""

    model: str = "default"
    device: str = "auto"
    dtype: str = "float32"
    normalization: str = "nfkc"
    sparsify: str = "union"
    max_length: int | None = None
    truncate: bool = False
    backend: str = "auto"
    activation: str | None = None
    max_active_dims: int | None = None


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise an InvalidInputError that lists the choices unless `value` is one of them."""
    if value not in allowed:
        raise InvalidInputError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


def check_texts(texts: Sequence[str]) -> None:
    """Raise an InvalidTypeError unless `texts` is a sequence of strings."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
        raise InvalidTypeError(f"texts has type {type(texts).__name__}; expected a list of strings")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts[{i}] has type {type(text).__name__}; expected a string")


def checked_count(name: str, value: int | None, default: int, minimum: int = 1) -> int:
    """`value`, or `default` for None; raises unless it is an integer of at least `minimum`."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidTypeError(f"{name} has type {type(value).__name__}; expected an integer or None")
    if value < minimum:
        raise InvalidInputError(f"{name} is {value}; expected at least {minimum}, or None for the model's own")
    return int(value)


def overridden(config: ModelConfig, settings: EncoderSettings) -> ModelConfig:
    """The configuration with the `activation`, `max_length` and `max_active_dims` that were asked for.

    Raises:
        InvalidInputError: if either cannot be used with this model.
        InvalidTypeError: if `max_length` or `max_active_dims` is no integer.
    """
    if settings.activation is not None:
        check_choice("activation", settings.activation, get_args(Activation))
        config = replace(config, activation=cast(Activation, settings.activation))
    if settings.max_length is not None:
        length = checked_count("max_length", settings.max_length, 0, minimum=SPECIAL_TOKENS + 1)
        most = (
            config.bert.max_position_embeddings
            if config.bert
            else max(config.max_length.query, config.max_length.passage)
        )
        if length > most:
            raise InvalidInputError(f"max_length is {length}; the model {config.name!r} has {most} positions at most")
        config = replace(config, max_length=PerSide(length, length))
    if settings.max_active_dims is not None:
        k = checked_count("max_active_dims", settings.max_active_dims, 0)
        config = replace(config, max_active_dims=PerSide(k, k), binary_active_dims=None)
    if min(config.max_length.query, config.max_length.passage) <= SPECIAL_TOKENS:
        raise InvalidInputError(
            f"model {config.name!r}: config.json gives max_length {config.max_length.query} (query) and "
            f"{config.max_length.passage} (passage); expected at least {SPECIAL_TOKENS + 1}"
        )
    return config
