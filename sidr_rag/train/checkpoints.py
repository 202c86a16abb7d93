"""Checkpoints that a killed run resumes from: each is whole or absent."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch

from sidr_rag.errors import InvalidInputError

_NAME = re.compile(r"step-(\d+)\.pt")
_KEPT = 2


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: made if absent.
        fingerprint: of the configuration; a checkpoint of another one is refused.
        world: number of processes, which must not change within a run.
    """

    def __init__(self, folder: Path, fingerprint: str, world: int) -> None:
        self._folder, self._fingerprint, self._world = folder, fingerprint, world

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write the state after `step` optimizer steps; the two newest checkpoints are kept."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"step-{step:07d}.pt"
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            torch.save({"step": step, "fingerprint": self._fingerprint, "world": self._world, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        for old in self._all()[:-_KEPT]:
            old.unlink()
        return path

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint, or None if there is none.

        Raises:
            InvalidInputError: if it is damaged, or belongs to another configuration or number of processes.
        """
        every = self._all()
        if not every:
            return None
        path = every[-1]
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds
            raise InvalidInputError(
                f"{path} is damaged ({type(error).__name__}); remove it to go on from the one before"
            ) from None
        if state.get("fingerprint") != self._fingerprint:
            raise InvalidInputError(
                f"{path} belongs to another configuration; choose another output folder, or start over with restart"
            )
        if state.get("world") != self._world:
            raise InvalidInputError(
                f"{path} was written by {state.get('world')} processes; resume with as many, not {self._world}"
            )
        return state

    def clear(self) -> None:
        """Remove every checkpoint of the run."""
        for path in self._all():
            path.unlink()

    def _all(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
