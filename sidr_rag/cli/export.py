"""`sidr-rag export`: a store's passages to a search engine or a BEIR folder."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from sidr_rag import SiDR
from sidr_rag.backends import open_backend
from sidr_rag.backends.corpus_file import write_corpus
from sidr_rag.cli.moving import connection_of, shown_rows
from sidr_rag.errors import IndexFormatError
from sidr_rag.options import stored_weighting


class Target(str, Enum):
    """Where passages can go."""

    qdrant = "qdrant"
    milvus = "milvus"
    beir = "beir"


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A folder for beir; for an engine HOST:PORT/COLLECTION or a URL, such as milvus:///path/file.db.",
            show_default=False,
        ),
    ],
    to: Annotated[Target, typer.Option("--to", help="What the target is.", show_default=False)],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="The store's folder.")] = Path(".sidr"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the target holds.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an export that was cut off: passages that are there stay.")
    ] = False,
    token_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the engine's key or token.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model that the store was made for.")] = "default",
) -> None:
    """Copy every passage of a store to Qdrant, Milvus or a BEIR folder, in order."""
    if overwrite and resume:
        raise typer.BadParameter("it cannot be combined with --overwrite", param_hint="--resume")
    with SiDR.open(store, read_only=True, model=model) as source:
        rows = shown_rows(source._store.scan(), len(source), "exporting")
        if to is Target.beir:
            write_corpus(rows, Path(target), overwrite=overwrite)
        else:
            url = target if "://" in target else f"{to.value}://{target}"
            if not url.startswith(to.value):
                raise typer.BadParameter(f"it is no {to.value} URL", param_hint="TARGET")
            with open_backend(
                url,
                create=True,
                overwrite=overwrite,
                weighting=stored_weighting(source._store.settings),
                connection=connection_of(to.value, token_variable),
                model=model,
            ) as engine:
                if len(engine) and not resume:
                    raise IndexFormatError(f"{url}: holds passages already; pass --resume or --overwrite")
                engine._store.add(rows, "skip" if resume else "replace")
        typer.echo(f"exported {len(source):,} passages to {target}")
