"""`sidr-rag import`: passages of a search engine or a BEIR folder as a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sidr_rag import SiDR
from sidr_rag.backends import is_backend, open_backend
from sidr_rag.backends.corpus_file import read_corpus
from sidr_rag.cli.moving import connection_of, shown_rows


def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A BEIR folder or corpus.jsonl, or an engine's URL, such as qdrant://host:6333/collection.",
            show_default=False,
        ),
    ],
    store: Annotated[Path, typer.Option("--store", metavar="DIR", help="The new store's folder.")] = Path(".sidr"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")] = False,
    binary: Annotated[
        bool, typer.Option("--binary", help="Weigh tokens as the paper does; for a BEIR source.")
    ] = False,
    token_variable: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that holds the engine's key or token.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model of the store.")] = "default",
) -> None:
    """Make a store from passages that lie elsewhere, in order and without loss."""
    if is_backend(source):
        if binary or overwrite:
            raise typer.BadParameter(
                "an engine's passages go into a new folder, with the weighting they have",
                param_hint="--binary/--overwrite",
            )
        engine = source.partition("://")[0]
        connection = connection_of(engine, token_variable)
        with open_backend(source, read_only=True, connection=connection, model=model) as remote:
            remote.save(store)
            n = len(remote)
    else:
        weighting: Literal["binary", "default"] = "binary" if binary else "default"
        passages = shown_rows(read_corpus(Path(source)), None, "importing")
        with SiDR.from_passages(passages, path=store, overwrite=overwrite, weighting=weighting, model=model) as sidr:
            n = len(sidr)
    typer.echo(f"imported {n:,} passages into {store}")
