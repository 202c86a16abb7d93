"""Training of SiDR encoders (needs the extra `[train]`); nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidr_rag.train.config import TrainConfig, load_train_config
    from sidr_rag.train.trainer import train

__all__ = ["TrainConfig", "load_train_config", "train"]

_HOMES = {"TrainConfig": "config", "load_train_config": "config", "train": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
