"""What a run leaves: the weights it has learned as a model folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sidr_rag.encoder.config import ModelConfig, Side
from sidr_rag.train.binary_layers import save_binary_layers
from sidr_rag.train.config import TrainConfig
from sidr_rag.train.objective import Objective
from sidr_rag.train.weights_io import save_model


class Exporter:
    """Writes an objective's present weights as a model.

    Args:
        config: the run's.
        model: what is trained.
        objective: what holds the weights.
    """

    def __init__(self, config: TrainConfig, model: ModelConfig, objective: Objective) -> None:
        self._config, self._model, self._objective = config, model, objective

    @property
    def sides(self) -> tuple[Side, ...]:
        """The encoders that the model has: one for both sides, or one for each."""
        return ("query",) if self._model.shared_encoder else ("query", "passage")

    @property
    def second_stage(self) -> str:
        """What the model re-ranks by: all that it has learned."""
        if not self._objective.teaches_dense:
            return "theta"
        return "all" if self._objective.learns("maxsim") else "dense"

    def write(self, folder: Path) -> None:
        """Write a model folder over what is there.

        Raises:
            InvalidInputError: if a number is not finite; nothing is written then.
        """
        config, base = self._config, self._config.base
        if self._model.binary_layers:
            save_binary_layers(folder, base, self._state("query"), self._model.binary_layers, config.name)
            return
        own = self.second_stage
        save_model(
            folder,
            {side: self._state(side) for side in self.sides},
            self._model,
            base,
            dense=own != "theta",
            weighting=self._objective.corpus.constants() if self._objective.learns("weighted") else None,
            rerank_blend=config.dev.blend,
            reranker=own if own == "all" else None,
        )

    def _state(self, side: Side) -> dict[str, NDArray[np.float32]]:
        state = self._objective.encoder(side).state_dict()
        return {name: value.detach().float().cpu().numpy() for name, value in state.items()}
