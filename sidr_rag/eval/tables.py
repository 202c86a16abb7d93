"""Reports as tables: rows of text that a terminal or a Markdown file shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidr_rag.eval.costs import Cost
from sidr_rag.eval.report import Report


@dataclass(frozen=True)
class Grid:
    """A table of text; the first column names the row, and the others are numbers.

    Attributes:
        title: for people.
        columns: their headings.
        rows: one text for each column.
        notes: lines below.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()


def result_grid(report: Report) -> Grid:
    """Every search with its measures and its cost."""
    columns = ("search", *report.measures, "texts embedded", "of corpus", "seconds")
    rows: list[tuple[str, ...]] = [
        (name, *(f"{result.mean(m):.4f}" for m in report.measures), *_cost(result.cost))
        for name, result in report.results.items()
    ]
    notes = [
        "texts embedded: queries and passages, every candidate of every query counted; seconds: all queries, without "
        "embedding passages",
    ]
    if report.encoded:
        rate = report.encoded / report.encoding.wall if report.encoding.wall else 0.0
        notes.append(
            f"{report.encoded:,} passages read by the model in {report.encoding.wall:,.1f} s ({rate:,.0f} a second)"
        )
    if report.indexing.wall:
        notes.append(f"{report.n_passages:,} passages indexed as bags of tokens in {report.indexing.wall:,.2f} s")
    if report.n_lost:
        notes.append(f"{report.n_lost:,} relevant passages are not in the corpus")
    title = (
        f"{report.dataset} ({report.split}): {report.n_queries:,} queries, {report.n_passages:,} passages, "
        f"model {report.model}"
    )
    return Grid(title, columns, rows, tuple(notes))


def comparison_grid(report: Report) -> Grid | None:
    """The tests of differences, or None if there were none."""
    if not report.comparisons:
        return None
    rows: list[tuple[str, ...]] = []
    for pair in report.comparisons:
        c = pair.comparison
        rows.append(
            (
                f"{pair.a} - {pair.b}",
                pair.measure,
                f"{c.difference:+.4f}",
                f"[{c.low:+.4f},{c.high:+.4f}]",
                f"{c.wins:,}/{c.losses:,} of {c.n:,}",
                f"{c.p_value:.4f}",
                f"{pair.corrected_p:.4f}",
            )
        )
    columns = ("difference of", "measure", "mean", "interval", "better/worse", "p", "p, Holm")
    note = "paired bootstrap over queries, two-sided; Holm's correction over all rows"
    return Grid(f"{report.dataset} ({report.split}): differences", columns, rows, (note,))


def summary_grids(reports: Sequence[Report]) -> list[Grid]:
    """For each measure that all reports have, every search on every dataset, and the mean over the datasets."""
    if len(reports) < 2:
        return []
    first = reports[0]
    measures = [m for m in first.measures if all(m in r.measures for r in reports)]
    names = [name for name in first.results if all(name in r.results for r in reports)]
    grids = []
    for measure in measures:
        rows = []
        for name in names:
            means = [r.results[name].mean(measure) for r in reports]
            rows.append((name, *(f"{v:.4f}" for v in [*means, sum(means) / len(means)])))
        grids.append(Grid(f"{measure} on every dataset", ("search", *(r.dataset for r in reports), "mean"), rows))
    return grids


def all_grids(reports: Sequence[Report]) -> list[Grid]:
    """Results and comparisons of each report, then the summaries."""
    grids = []
    for report in reports:
        grids += [grid for grid in (result_grid(report), comparison_grid(report)) if grid is not None]
    return grids + summary_grids(reports)


def markdown(reports: Report | Sequence[Report]) -> str:
    """All tables as one Markdown text."""
    every = [reports] if isinstance(reports, Report) else reports
    return "\n\n".join(_markdown(grid) for grid in all_grids(every)) + "\n"


def _markdown(grid: Grid) -> str:
    lines = [f"**{grid.title}**", "", _line(grid.columns), "|---|" + "---:|" * (len(grid.columns) - 1)]
    lines += [_line(row) for row in grid.rows]
    lines += ["", *(f"- {note}" for note in grid.notes)] if grid.notes else []
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cost(cost: Cost | None) -> tuple[str, str, str]:
    if cost is None:
        return "", "", ""
    return f"{cost.texts:,}", f"{100 * cost.share:,.2f} %", f"{cost.seconds.wall:,.2f}"
