"""Results: one JSON file for each benchmark, and the Markdown file made of them all."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe

FOLDER = Path(__file__).resolve().parent / "results"
MARKDOWN = Path(__file__).resolve().parent / "RESULTS.md"
ORDER = (
    *("indexing", "index_peers", "kernels", "one_query", "batch", "search_speed", "passage_bytes", "adding", "pruning"),
    *("first_answer", "growth", "startup", "store", "quality", "late", "late_dev", "late_speed", "backends"),
    "device_search",
)

Cell = str | int | float | None


@dataclass(frozen=True)
class Must:
    """A figure with the bound it must keep, "at least" or "at most".

    Attributes:
        what: the figure's name and unit.
        value: as measured.
        bound: what it must keep.
        at_least: whether more is better.
        aim: what it should reach, beyond the bound.
        limit: what stands in the way, shown where the bound is missed.
    """

    what: str
    value: float
    bound: float
    at_least: bool = False
    aim: float | None = None
    limit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Table:
    """Figures for people: the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass
class Result:
    """Everything one benchmark has to say; plots are names of SVG files in the folder of the results."""

    name: str
    title: str
    method: Sequence[str]
    peers: Sequence[str]
    packages: Sequence[str]
    command: str
    tables: list[Table] = field(default_factory=list)
    musts: list[Must] = field(default_factory=list)
    plots: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Write the JSON file, and show the outcome."""
        values = self._values()
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{self.name}.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        print("\n".join(_section(values)))

    def show(self) -> None:
        """Show the outcome, and write nothing: of a trial at small sizes."""
        print("\n".join(_section(self._values())))

    def _values(self) -> dict[str, Any]:
        values = {
            **asdict(self),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": describe(self.packages),
            "musts": [{**asdict(must), "met": must.met} for must in self.musts],
        }
        del values["packages"]
        return values


def write_markdown() -> None:
    """Make the Markdown file of every JSON file there is."""
    files = [FOLDER / f"{name}.json" for name in ORDER]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.exists()]
    lines = [
        "# Benchmarks",
        "",
        "Made by `python -m benchmarks` (`make bench`); the figures behind the tables are in `results/`. "
        "Do not edit: run it again.",
        "",
    ]
    for values in found:
        lines += _section(values)
    MARKDOWN.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _section(values: dict[str, Any]) -> list[str]:
    machine = values["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [f"## {values['title']}", ""]
    lines += [f"- Command: `{values['command']}`; {values['date']}"]
    lines += [
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['ram_gib']} GiB, load average at the end "
        f"{machine['load_average']}, {machine['system']}, Python {machine['python']}; {packages}"
    ]
    lines += [f"- Peers, in the same run: {'; '.join(values['peers'])}"] if values["peers"] else []
    lines += [f"- {line}" for line in values["method"]]
    lines += [""]
    lines += _targets(values["musts"]) if values["musts"] else []
    for plot in values.get("plots", ()):
        lines += [f"![{values['title']}](results/{plot})", ""]
    for table in values["tables"]:
        lines += [f"**{table['title']}**", "", *_grid(table["columns"], table["rows"]), ""]
    return lines


def _targets(musts: Sequence[dict[str, Any]]) -> list[str]:
    aims = any(m.get("aim") is not None for m in musts)
    rows: list[list[Cell]] = []
    for m in musts:
        sign = ">=" if m["at_least"] else "<="
        aim = [None if m.get("aim") is None else f"{sign} {m['aim']}"] if aims else []
        rows.append([m["what"], m["value"], f"{sign} {m['bound']}", *aim, "yes" if m["met"] else _missed(m)])
    columns = ("target", "measured", "must", *(("aim",) if aims else ()), "met")
    return [*_grid(columns, rows), ""]


def _missed(must: dict[str, Any]) -> str:
    """By how much, and what limits it."""
    short, limit = abs(must["value"] - must["bound"]), must.get("limit")
    by = f"by {short / abs(must['bound']):.0%}" if must["bound"] else f"by {short:.3g}"
    return f"**no**, {by}" + (f": {limit}" if limit else "")


def _grid(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" + "---:|" * (len(columns) - 1)]
    return lines + ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in rows]


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}" if abs(cell) >= 10 else f"{cell:.3f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
