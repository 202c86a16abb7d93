"""`sidr-rag train`, `average` and `tune`: a training run, the mean of several, the choice of a model's constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sidr_rag.errors import MissingExtraError

_NEEDED = ("torch", "yaml")

Config = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to train, on what, and how.")]


def train(
    config: Config,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of resuming the output folder's newest checkpoint.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Stop, with a checkpoint, after so many optimizer steps in all.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed than the configuration's.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Another folder than the configuration's.")
    ] = None,
) -> None:
    """Train a model; a run that was stopped or killed goes on when started again.

    Under torchrun, several processes train together. Runs that differ in --seed alone, each with its own --output, can
    be averaged.
    """
    with _training():
        from sidr_rag.train.config import load_train_config
        from sidr_rag.train.trainer import train as run
    given = load_train_config(config)
    given = replace(given, seed=given.seed if seed is None else seed, output=output or given.output)
    folder = run(given, restart=restart, steps=steps, show=_show)
    typer.echo(f"model: {folder}")


def tune(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that training wrote.")],
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="A training configuration, or a file with its `dev` alone.")
    ],
    candidates: Annotated[int, typer.Option(min=0, help="m of late search; 0 leaves its blend as it is.")] = 100,
    active_dims: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Active dimensions of queries to try; may be repeated.", show_default="32, 64, 128"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be chosen, and change nothing.")] = False,
) -> None:
    """Choose a model's search constants on the configuration's dev sets, and write them into its config.json."""
    with _training():
        from sidr_rag.train.config import load_dev
        from sidr_rag.train.tune import ACTIVE_DIMS
        from sidr_rag.train.tune import tune as run
    dev, dims = load_dev(config), active_dims or ACTIVE_DIMS
    chosen = run(model, dev, active_dims=dims, candidates=candidates, write=not dry_run, show=_show)
    late = "" if chosen.late is None else f", late {100 * chosen.late:.2f} at a blend of {chosen.blend}"
    typer.echo(f"beta {100 * chosen.first_stage:.2f} with {chosen.active_dims} active dimensions{late}")


def average(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Folders that training wrote, two or more.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the new model.")],
) -> None:
    """Write a model whose weights are the mean of others' that were trained from one start."""
    with _training():
        from sidr_rag.train.average import average_models
    average_models(models, output)
    typer.echo(f"model: {output}")


@contextmanager
def _training() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in _NEEDED:
            raise MissingExtraError(error.name, "train", "training") from error
        raise


def _show(line: str) -> None:
    # Long runs are mostly watched through a file.
    print(line, flush=True)
