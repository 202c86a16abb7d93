"""`sidr-rag check`: is everything in a store as it was written?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sidr_rag.cli.showing import write_json
from sidr_rag.index.check import check_store


def check(
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="The store's folder.")] = Path(".sidr"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")] = False,
) -> None:
    """Read a whole store and report damage; ends with 1 if there is any. Nothing is changed."""
    report = check_store(store)
    if as_json:
        write_json({"ok": report.ok, **asdict(report)})
    else:
        for fault in report.damaged:
            typer.echo(f"damaged: {fault}")
        for fault in report.derived:
            typer.echo(f"to be rebuilt: {fault}")
        state = "everything is whole" if report.ok else f"{len(report.damaged) + len(report.derived)} faults"
        typer.echo(f"{report.passages:,} passages in {report.segments:,} segments: {state}")
    if not report.ok:
        raise typer.Exit(1)
