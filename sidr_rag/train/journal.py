"""The run's log: one JSON object a line, for programs; and lines of progress, for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_SHORT = {
    "weighted": "beta",
    "query_bot": "binary",
    "bot_passage": "alpha",
    "full": "full",
    "weighted_full": "weighted full",
    "dense": "dense",
    "maxsim": "maxsim",
}


class Journal:
    """The log file of a run.

    Args:
        path: a JSON-lines file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def start_at(self, step: int) -> None:
        """Drop what was logged of this step and later ones, so that a resumed run logs every step once."""
        if not self.path.exists():
            return
        kept = [line for line in read_log(self.path) if line["step"] < step]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        temporary.replace(self.path)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last one that a kill cut off is left out."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


class Progress:
    """Lines for people.

    Args:
        show: where they go.
        total: optimizer steps of the run.
        every: steps between two lines.
    """

    def __init__(self, show: Callable[[str], None], total: int, every: int) -> None:
        self._show, self._total, self._every = show, total, every
        self._recent: list[dict[str, Any]] = []
        self._last_time = 0.0

    def say(self, text: str) -> None:
        """Show a line."""
        self._show(text)

    def counting(self, label: str, done: int, total: int) -> None:
        """How far a long preparation is; at most one line every ten seconds."""
        if done == total or time.monotonic() - self._last_time > 10:
            self._last_time = time.monotonic()
            self._show(f"{label}: {done:,} of {total:,}")

    def step(self, record: dict[str, Any]) -> None:
        """Take in a step's record; show the means of the last ones when it is time."""
        self._recent.append(record)
        done = int(record["step"]) + 1
        if done % self._every and done != self._total:
            return
        recent, self._recent = self._recent, []
        seconds = float(np.mean([r["seconds"] for r in recent]))
        parts = []
        for term, short in _SHORT.items():
            losses = [r[f"loss_{term}"] for r in recent if f"loss_{term}" in r]
            hits = [r[f"accuracy_{term}"] for r in recent if f"accuracy_{term}" in r]
            if hits:
                loss = f"{np.mean(losses):.3f}, " if losses else ""
                parts.append(f"{short} {loss}{100 * float(np.mean(hits)):.0f}% right")
        mean_loss = float(np.mean([r["loss"] for r in recent]))
        dims = float(np.mean([r["dims_above_one"] for r in recent]))
        own = 100 * float(np.mean([r["own_share"] for r in recent]))
        left = _duration(seconds * (self._total - done))
        self._show(
            f"step {done:,}/{self._total:,}  loss {mean_loss:.3f}  [{'; '.join(parts)}]  "
            f"{dims:.0f} dims above 1, own words {own:.0f}% of the weight  {seconds:.2f} s a step, {left} left"
        )

    def dev(self, step: int, scores: Mapping[str, Mapping[str, float]], best: bool) -> None:
        """Show an evaluation: nDCG@10 of each search on each set, in hundredths."""
        self._show(f"step {step:,}: nDCG@10 on dev sets" + ("  (best so far)" if best else ""))
        for search, by_set in scores.items():
            cells = "  ".join(f"{name} {100 * value:.1f}" for name, value in by_set.items())
            self._show(f"    {search:10} mean {100 * float(np.mean(list(by_set.values()))):.1f}   {cells}")

    def examples(self, rows: Sequence[tuple[str, Sequence[tuple[str, float, bool]]]]) -> None:
        """Show the heaviest tokens of some queries; a star marks the query's own."""
        for query, tokens in rows:
            shown = " ".join(f"{token}{'*' if own else ''} {weight:.1f}" for token, weight, own in tokens)
            self._show(f"    {query!r}: {shown}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
