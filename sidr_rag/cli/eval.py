"""`sidr-rag eval`: every kind of search on judged datasets, with its quality and its cost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sidr_rag.cli.showing import printable
from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError, StorageError
from sidr_rag.eval.datasets import Dataset, load_dataset
from sidr_rag.eval.report import Report
from sidr_rag.eval.runner import evaluate
from sidr_rag.eval.searches import named_searches
from sidr_rag.eval.tables import Grid, comparison_grid, markdown, result_grid, summary_grids
from sidr_rag.eval.trec import Run, read_run, write_qrels, write_run

_SEARCHES = "beta,late,bm25"
_WIDTH = 240


def eval_(
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASETS...",
            help="BEIR folders, or DPR's: a folder with psgs_w100.tsv and *-SPLIT.qa.csv, or the .tsv itself.",
            show_default=False,
        ),
    ],
    search: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Searches, by commas: beta, beta-binary, lexical, bot, full, full-binary, alpha, alpha-binary, late, "
            "late-both, late-theta, late-binary, bm25, bm25-wordpiece, bm25+late, bm25+late-theta, pairs such as "
            "theta:lex, or pairs for the paper's.",
        ),
    ] = _SEARCHES,
    rerank: Annotated[str, typer.Option(metavar="M,M", help="How many candidates the late searches re-rank.")] = "100",
    split: Annotated[str, typer.Option(help="Which queries: the name of a file of judgements or questions.")] = "test",
    questions: Annotated[Path | None, typer.Option(metavar="FILE", help="DPR's *.qa.csv, if not found.")] = None,
    measures: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="As ir-measures names them, by commas, and Success(answers)@k; by default nDCG@10, R@100, RR@10 and, "
            "where there are answer strings, Success(answers)@1 to 100.",
        ),
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Test A against B (paired bootstrap); may be repeated.")
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Measure a TREC run, too, named as its file; may be repeated."),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every run, and the judgements, in TREC's formats.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables as Markdown.")
    ] = None,
    limit_queries: Annotated[
        int | None, typer.Option(metavar="N", help="At most N queries of each dataset, evenly spaced.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep index and embeddings there, for the next evaluation."),
    ] = None,
    k1: Annotated[float, typer.Option(help="BM25's k1.")] = 0.9,
    b: Annotated[float, typer.Option(help="BM25's b.")] = 0.4,
    model: Annotated[str, typer.Option(help='The model: "default", a folder, or a name on the model hub.')] = "default",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Evaluate searches on judged datasets: quality, cost, and tests of differences."""
    searches = named_searches(_names(search), rerank=_numbers(rerank), k1=k1, b=b)
    pairs = [_pair(text) for text in compare or ()]
    found = _loaded(datasets, split, questions, limit_queries)
    others = _outside_runs(run or (), len(found))
    _prepared(runs, json_file, markdown_file)
    encoder = load_encoder(model, device=device)
    console = _console()
    reports: list[Report] = []
    with Console(stderr=True).status("") as status:
        for dataset in found:
            report = evaluate(
                dataset,
                searches,
                measures=None if measures is None else _names(measures),
                model=encoder,
                store=None if store is None else store / _file_name(dataset.name),
                runs=others,
                compare=pairs,
                plain_ids=runs is not None,
                on_step=lambda step: status.update(Text(printable(step))),
            )
            reports.append(report)
            _show(console, [result_grid(report), comparison_grid(report)])
            # Written after each dataset: a later fault loses nothing.
            if runs is not None:
                _write_runs(report, dataset, runs)
            if json_file is not None:
                _write(json_file, json.dumps([r.to_mapping(per_query=True) for r in reports], indent=1) + "\n")
            if markdown_file is not None:
                _write(markdown_file, markdown(reports))
    _show(console, summary_grids(reports))


def _loaded(paths: Sequence[Path], split: str, questions: Path | None, limit: int | None) -> list[Dataset]:
    """The datasets, all opened before the first is worked on; their names tell files apart."""
    found: list[Dataset] = []
    for path in paths:
        dataset = load_dataset(path, split, questions)
        if any(other.name == dataset.name for other in found):
            raise InvalidInputError(f"datasets: two are named {dataset.name!r}; evaluate them one by one")
        found.append(dataset if limit is None else dataset.limited(limit))
    return found


def _outside_runs(paths: Sequence[Path], n_datasets: int) -> dict[str, Run]:
    if paths and n_datasets > 1:
        raise typer.BadParameter("a run is of one dataset; give one", param_hint="--run")
    runs: dict[str, Run] = {}
    for path in paths:
        name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
        if name in runs:
            raise typer.BadParameter(f"two files are named {name}", param_hint="--run")
        runs[name] = read_run(path)
    return runs


def _prepared(runs: Path | None, *files: Path | None) -> None:
    """Find out before the work, not after it, that the results cannot be written."""
    if runs is not None:
        _guarded(runs, lambda: runs.mkdir(parents=True, exist_ok=True))
    for file in files:
        if file is not None:
            _guarded(file, partial(_touch, file))


def _write_runs(report: Report, dataset: Dataset, folder: Path) -> None:
    stem = f"{_file_name(dataset.name)}.{_file_name(dataset.split)}"
    for name, result in report.results.items():
        path = folder / f"{stem}.{_file_name(name)}.run"
        _guarded(path, partial(write_run, result.run, path, tag=_file_name(name)))
    if dataset.qrels:
        path = folder / f"{stem}.qrels"
        _guarded(path, lambda: write_qrels(dataset.qrels, path))


def _touch(path: Path) -> None:
    path.open("a", encoding="utf-8").close()


def _write(path: Path, text: str) -> None:
    _guarded(path, lambda: path.write_text(text, encoding="utf-8"))


def _guarded(path: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise StorageError(error.errno, f"cannot write: {error.strerror}", str(path)) from error


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH  # nothing to fit in: no cell is cut
    return console


def _show(console: Console, grids: Sequence[Grid | None]) -> None:
    for grid in grids:
        if grid is None:
            continue
        table = Table(title=Text(printable(grid.title)), title_justify="left", box=box.SIMPLE_HEAD)
        for i, column in enumerate(grid.columns):
            table.add_column(Text(printable(column)), justify="right" if i else "left", no_wrap=not i)
        for row in grid.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        console.print(table)
        for note in grid.notes:
            console.print(Text(printable(note)), style="dim", soft_wrap=True)
        console.print()


def _names(text: str) -> list[str]:
    """Names between commas, those inside brackets left alone."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", text) if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in _names(text)]
    except ValueError:
        raise typer.BadParameter("write whole numbers with commas, as 20,100", param_hint="--rerank") from None


def _pair(text: str) -> tuple[str, str]:
    names = _names(text)
    if len(names) != 2:
        raise typer.BadParameter("write two searches with a comma, as beta,bm25", param_hint="--compare")
    return names[0], names[1]


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+@-]", "-", name).lstrip(".") or "-"
