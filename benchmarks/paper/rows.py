"""One table of the paper beside our figures: its rows, its claims, and the JSON file that keeps them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.results import FOLDER as RESULTS

FOLDER = RESULTS / "paper"
PACKAGES = ("numpy", "numba", "tokenizers", "torch", "bm25s", "PyStemmer", "ir_measures", "pytrec_eval-terrier")

Value = str | int | float | None


@dataclass(frozen=True)
class Row:
    """One row of a table of the paper, or one of ours beside it.

    Attributes:
        name: as the paper has it.
        paper: the paper's values by column; empty for a row of ours.
        ours: our values by column; empty where there are none.
        command: what gives the row on the paper's own data, or on ours where that is what there is.
        note: what stands in for what, or why there is no value.
    """

    name: str
    paper: Mapping[str, Value] = field(default_factory=dict)
    ours: Mapping[str, Value] = field(default_factory=dict)
    command: str = ""
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """Something that the paper's table shows: one figure is better than another.

    Attributes:
        text: the claim.
        paper: the paper's two figures, the one that it puts ahead first.
        ours: the same two of ours, by data set.
        reading: what an experiment says of a disagreement; "" leaves it open.
        lower: whether the smaller figure is the better one.
    """

    text: str
    paper: tuple[float, float]
    ours: Mapping[str, tuple[float, float]]
    reading: str = ""
    lower: bool = False

    def agrees(self, data: str) -> bool:
        """Whether our figures on a data set differ in the paper's direction."""
        ahead, behind = self.ours[data]
        return ahead < behind if self.lower else ahead > behind

    @property
    def verdict(self) -> str:
        """In how many data sets the direction is the paper's."""
        if not self.ours:
            return "not run yet"
        same = sum(map(self.agrees, self.ours))
        return "agrees" if same == len(self.ours) else "disagrees" if not same else f"{same} of {len(self.ours)} agree"


@dataclass
class PaperTable:
    """A table of the paper with everything that is said of it.

    Attributes:
        name: of its module; the JSON file is named after it.
        title: for people.
        method: how our figures were made.
        rows: every row of the paper's table, then ours.
        claims: what the paper's table shows.
        oddities: what is strange in the paper's own figures; noted, not chased.
        plots: SVG files beside the JSON file.
        small: whether it was made at small sizes; such a table is never written.
        whole: whether every set was measured.
    """

    name: str
    title: str
    method: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    oddities: Sequence[str] = ()
    plots: Sequence[str] = ()
    small: bool = False
    whole: bool = True

    def write(self) -> Path:
        """Write the JSON file, with date and machine.

        Raises:
            ValueError: for a table made at small sizes.
        """
        if self.small:
            raise ValueError(f"{self.name} was made at small sizes; it is not written")
        FOLDER.mkdir(parents=True, exist_ok=True)
        path = FOLDER / f"{self.name}.json"
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        values = {**asdict(self), "date": date, "machine": describe(PACKAGES)}
        path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def read(name: str) -> dict[str, Any] | None:
    """What `PaperTable.write` wrote; None if the table was never run."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table_of(values: Mapping[str, Any]) -> PaperTable:
    """The table back from `read`."""
    kept = {name: values[name] for name in ("name", "title", "method", "oddities", "plots", "whole")}
    claims = [
        Claim(**{**c, "paper": tuple(c["paper"]), "ours": {k: tuple(v) for k, v in c["ours"].items()}})
        for c in values["claims"]
    ]
    return PaperTable(**kept, rows=[Row(**row) for row in values["rows"]], claims=claims)
