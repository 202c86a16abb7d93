"""What export and import share: a progress bar, and the key of an engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")


def shown_rows(rows: Iterable[T], total: int | None, what: str) -> Iterator[T]:
    """The same rows, with a progress bar on stderr if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("passages"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for row in rows:
            yield row
            progress.update(task, advance=1)


def connection_of(engine: str, variable: str | None) -> dict[str, str]:
    """What the engine's client needs to be let in; the secret is read from the environment, never from arguments."""
    if variable is None:
        return {}
    secret = os.environ.get(variable)
    if not secret:
        raise typer.BadParameter(f"the environment has no variable {variable}", param_hint="--token-variable")
    return {"api_key" if engine.startswith("qdrant") else "token": secret}
