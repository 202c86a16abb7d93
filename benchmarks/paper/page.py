"""`benchmarks/paper.md` of the JSON files there are; tables that were never run show the paper's rows and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.paper.rows import Claim, PaperTable, Row, Value, read, table_of

MARKDOWN = Path(__file__).resolve().parents[1] / "paper.md"
_PLOTS = "results/paper"
_INTRODUCTION = (
    "# The paper's tables",
    "",
    "Every row of every table of *Semi-Parametric Retrieval via Binary Bag-of-Tokens Index*, with the command that "
    "gives it on the paper's own data, the paper's value, and ours where our data allows. Made by `make paper` "
    "(`python -m benchmarks.paper [TABLE ...]`); do not edit.",
    "",
    "The paper's collections (Wikipedia in 21 million passages, MS MARCO, most of BEIR) and its checkpoints are not "
    "here, and training on them takes GPUs. So small collections stand in for them, the bundled default model "
    "(22.6 M parameters, trained for CPUs) for SiDR, all-MiniLM-L6-v2 for DPR and E5. Figures are therefore not to be "
    "compared across the two halves of a row; what can be compared is the direction between rows, under **Claims**. "
    "With the real files, the commands give the paper's setting: train with `configs/paper-*.yaml`, then evaluate.",
    "",
)


def write_page(empty: Callable[[str], PaperTable], names: Sequence[str]) -> Path:
    """Write the page.

    Args:
        empty: gives the table of a name without figures, where it was never run.
        names: of the tables, in order.
    """
    lines = list(_INTRODUCTION)
    for name in names:
        values = read(name)
        table = empty(name)
        lines += section(_read_anew(table_of(values), table), values) if values else section(table, None)
    MARKDOWN.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return MARKDOWN


def _read_anew(table: PaperTable, today: PaperTable) -> PaperTable:
    """A table with the readings that the code has today: they may change without a new measurement."""
    readings = {claim.text: claim.reading for claim in today.claims}
    claims = [replace(claim, reading=readings.get(claim.text, claim.reading)) for claim in table.claims]
    return replace(table, claims=claims)


def section(table: PaperTable, values: dict[str, Any] | None) -> list[str]:
    """The part of the page about one table.

    Args:
        table: with or without figures.
        values: what was read of its file; None if it was never run.
    """
    lines = [f"## {table.title}", "", f"- Command: `python -m benchmarks.paper {table.name}`{_when(values)}"]
    lines += [f"- {line}" for line in table.method]
    lines += ["", *_grid(table.rows)]
    for plot in table.plots:
        lines += [f"![{table.title}]({_PLOTS}/{plot})", ""]
    lines += _claims(table.claims)
    if table.oddities:
        lines += ["**Oddities of the paper's figures**", "", *(f"- {line}" for line in table.oddities), ""]
    return lines


def _when(values: dict[str, Any] | None) -> str:
    if values is None:
        return "; **not run yet**"
    machine = values["machine"]
    part = "" if values["whole"] else "; **some sets are not measured yet**"
    load = f"{machine['cores']} cores, load average {machine['load_average']}"
    return f"{part}; {values['date']}; {machine['cpu']}, {load}, Python {machine['python']}"


def _grid(rows: Sequence[Row]) -> list[str]:
    paper = list(dict.fromkeys(column for row in rows for column in row.paper))
    ours = list(dict.fromkeys(column for row in rows for column in row.ours))
    header = ["row", *(f"paper: {c}" for c in paper), *(f"ours: {c}" for c in ours), "command", "note"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [row.name, *(_shown(row.paper.get(c)) for c in paper), *(_shown(row.ours.get(c)) for c in ours)]
        cells += [f"`{row.command}`" if row.command else "", row.note]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _claims(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    lines = ["**Claims**", "", "| the paper | its figures | ours | verdict | reading |", "|---|---|---|---|---|"]
    for claim in claims:
        ours = "; ".join(f"{data}: {_shown(a)} and {_shown(b)}" for data, (a, b) in claim.ours.items())
        differs = bool(claim.ours) and not all(map(claim.agrees, claim.ours))
        reading = claim.reading or "open" if differs else ""
        shown = f"{_shown(claim.paper[0])} and {_shown(claim.paper[1])}"
        lines.append(f"| {claim.text} | {shown} | {ours} | {claim.verdict} | {reading} |")
    return [*lines, ""]


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
