"""The commands themselves: arguments in, one call of the library, a few lines out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sidr_rag import SiDR, __version__
from sidr_rag.cli.check import check
from sidr_rag.cli.eval import eval_
from sidr_rag.cli.export import export
from sidr_rag.cli.importing import import_
from sidr_rag.cli.reading import Reading
from sidr_rag.cli.showing import show_info, show_reading, show_results, write_json
from sidr_rag.cli.train import average, train, tune
from sidr_rag.uploads import add_files, sync_folder

app = typer.Typer(
    name="sidr-rag",
    help="Search your own files: a document is searchable the moment it is tokenized.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class SearchKind(str, Enum):
    """Which representations meet in a search."""

    beta = "beta"
    full = "full"
    alpha = "alpha"


class WeightingKind(str, Enum):
    """How a new store weighs tokens."""

    default = "default"
    binary = "binary"


Paths = Annotated[list[Path], typer.Argument(metavar="PATHS...", help="Files and folders to read.", show_default=False)]
Store = Annotated[Path, typer.Option("--store", metavar="DIR", help="The store's folder.")]
Model = Annotated[str, typer.Option(help='The model: "default", a folder, or a name on the model hub.')]
MaxTokens = Annotated[int, typer.Option(help="The most tokens in a passage.")]
Overlap = Annotated[int, typer.Option(help="Tokens that neighbouring passages share.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]

_STORE = Path(".sidr")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sidr-rag {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Search your own files: a document is searchable the moment it is tokenized."""


@app.command()
def index(
    paths: Paths,
    store: Store = _STORE,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")] = False,
    max_tokens: MaxTokens = 160,
    overlap: Overlap = 0,
    weighting: Annotated[
        WeightingKind, typer.Option(help="The model's own weighting, or the paper's.")
    ] = WeightingKind.default,
    workers: Annotated[
        int, typer.Option(min=0, metavar="N", help="Other processes that count tokens, for large collections.")
    ] = 0,
    model: Model = "default",
) -> None:
    """Make a new store from files and folders."""
    start = time.perf_counter()
    reading = Reading(paths, max_tokens=max_tokens, overlap=overlap)
    with SiDR.from_passages(
        partial(reading.passages, required=True),
        path=store,
        overwrite=overwrite,
        weighting=weighting.value,
        num_workers=workers,
        model=model,
    ) as sidr:
        show_reading(reading.report, time.perf_counter() - start, len(sidr), store)


@app.command()
def add(
    paths: Paths,
    store: Store = _STORE,
    max_tokens: MaxTokens = 160,
    overlap: Overlap = 0,
    sync: Annotated[bool, typer.Option("--sync", help="Also remove what came from files that are gone.")] = False,
    model: Model = "default",
) -> None:
    """Add files and folders to a store; a file that is there already is replaced."""
    start = time.perf_counter()
    with SiDR.open(store, model=model) as sidr:
        reading = Reading(paths, max_tokens=max_tokens, overlap=overlap)
        upload = sync_folder if sync else add_files
        report = upload(sidr, paths, max_tokens=max_tokens, overlap=overlap, on_file=reading.note, watch=reading.shown)
        show_reading(report, time.perf_counter() - start, len(sidr), store)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="The question.", show_default=False)],
    store: Store = _STORE,
    k: Annotated[int, typer.Option("-k", "--k", help="How many passages.")] = 5,
    rerank: Annotated[int, typer.Option(metavar="M", help="Re-rank the best M passages with the model.")] = 0,
    kind: Annotated[SearchKind, typer.Option("--search", help="The kind of search.")] = SearchKind.beta,
    filter: Annotated[
        str | None, typer.Option(metavar="JSON", help='Only passages whose metadata match, as {"kind": "pdf"}.')
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each token adds to the beta score.")] = False,
    as_json: AsJson = False,
    model: Model = "default",
) -> None:
    """Find the passages that answer a question."""
    if explain and kind is not SearchKind.beta:
        raise typer.BadParameter(
            "it shows the parts of the beta score, so it needs --search beta", param_hint="--explain"
        )
    wanted = _parsed(filter)
    # Only a search that embeds passages has something to keep beside the store.
    read_only = kind is SearchKind.beta and not rerank
    with SiDR.open(store, read_only=read_only, model=model) as sidr:
        start = time.perf_counter()
        results = sidr.search(query, k=k, rerank=rerank, search=kind.value, filter=wanted)
        seconds = time.perf_counter() - start
        reasons = [sidr.explain(query, r.passage.id) for r in results] if explain else None
        show_results(results, reasons, seconds, as_json=as_json)


@app.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="IDS...", help="Ids of passages.", show_default=False)],
    store: Store = _STORE,
    model: Model = "default",
) -> None:
    """Delete passages by id."""
    with SiDR.open(store, model=model) as sidr:
        deleted = sidr.delete(ids)
        unknown = len(set(ids)) - deleted
        typer.echo(f"deleted {deleted:,} passages" + (f"; {unknown:,} ids are not in the store" if unknown else ""))


@app.command()
def info(store: Store = _STORE, as_json: AsJson = False, model: Model = "default") -> None:
    """Show what a store holds."""
    with SiDR.open(store, read_only=True, model=model) as sidr:
        facts = sidr.info()
    if as_json:
        write_json(facts)
    else:
        show_info(facts)


app.command()(check)
app.command("eval")(eval_)
app.command()(export)
app.command("import")(import_)
app.command()(train)
app.command()(average)
app.command()(tune)


def _parsed(filter: str | None) -> Mapping[str, Any] | None:
    if filter is None:
        return None
    try:
        value = json.loads(filter)
    except (ValueError, RecursionError):
        raise typer.BadParameter(
            'it is no JSON; write an object such as \'{"kind": "pdf"}\'', param_hint="--filter"
        ) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(
            f'it is JSON, but of type {type(value).__name__}; write an object such as \'{{"kind": "pdf"}}\'',
            param_hint="--filter",
        )
    return value
