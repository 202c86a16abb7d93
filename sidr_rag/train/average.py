"""The mean of the weights of models that were trained from one start: often better than each of them.

"Model soups" (Wortsman et al. 2022): what one run has gained and another has kept lies between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import DenseHead, ModelConfig, Side
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.binary_layers import binary_state, same_rest, save_binary_layers
from sidr_rag.train.weights_io import initial_state, model_config, own_shape, save_model


def average_models(models: Sequence[Path], output: Path) -> None:
    """Write a model whose weights are the mean of others'; its configuration is the first one's.

    Where binary queries have layers of their own, these are averaged, and all else must be the same in every model.

    Args:
        models: folders that training wrote, at least two, of one shape.
        output: a folder, made if absent; a model in it is replaced.

    Raises:
        InvalidInputError: if there are fewer than two, or they are not of one shape.
    """
    if len(models) < 2:
        raise InvalidInputError(f"models: {len(models)} given; an average needs at least two")
    configs = [load_config(model) for model in models]
    for model, config in zip(models, configs, strict=True):
        if config.layout != "sidr":
            raise InvalidInputError(f"models: {model} is of layout {config.layout!r}; give folders that training wrote")
        if _shape(config) != _shape(configs[0]):
            raise InvalidInputError(f"models: {model} differs from {models[0]} in more than its weights")
    first = configs[0]
    if first.binary_layers:
        if not same_rest(models):
            raise InvalidInputError(
                "models: their layers for binary queries belong to other weights, which differ; average models without "
                "such layers, then train them"
            )
        save_binary_layers(output, models[0], _mean([binary_state(m) for m in models]), first.binary_layers, first.name)
        return
    shaped = model_config(models[0], own_shape(models[0]), first.name)
    sides: tuple[Side, ...] = ("query",) if shaped.shared_encoder else ("query", "passage")
    weights = {side: _mean([initial_state(model, shaped, side, 0.0) for model in models]) for side in sides}
    weighting = None if first.weighting is None else Weighting.from_mapping(first.weighting)
    save_model(
        output,
        weights,
        shaped,
        models[0],
        dense=first.dense is not None,
        weighting=weighting,
        rerank_blend=first.rerank_blend,
        reranker=first.reranker,
    )


def _shape(config: ModelConfig) -> tuple[str, DenseHead | None, int]:
    return config.identity(), config.dense, config.binary_layers


def _mean(states: Sequence[dict[str, NDArray[np.float32]]]) -> dict[str, NDArray[np.float32]]:
    return {
        name: np.mean([np.asarray(state[name], np.float64) for state in states], axis=0).astype(np.float32)
        for name in states[0]
    }
