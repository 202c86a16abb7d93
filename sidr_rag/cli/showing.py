"""What the commands print: plain lines for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from sidr_rag.explain import Explanation
from sidr_rag.files import FileReport
from sidr_rag.types import SearchResult

_SNIPPET = 300
_PARTS = 12
_FILES = 10


def show_reading(report: FileReport, seconds: float, n_stored: int, store: Path) -> None:
    """Print what became of the files, and the rate."""
    console = _console()
    rate = report.n_passages / seconds if seconds else 0.0
    _line(
        console,
        f"{report.n_passages:,} passages from {len(report.loaded):,} files in {seconds:.2f} s "
        f"({rate:,.0f} passages/s); {store} now holds {n_stored:,}",
    )
    _list_files(console, "skipped", report.skipped)
    _list_files(console, "failed", report.failed)


def show_results(
    results: Sequence[SearchResult], reasons: Sequence[Explanation] | None, seconds: float, *, as_json: bool
) -> None:
    """Print search results, each with its explanation if there is one."""
    if as_json:
        write_json([_result_value(r, None if reasons is None else reasons[i]) for i, r in enumerate(results)])
        return
    console = _console()
    for i, result in enumerate(results):
        stage = f" (re-ranked; beta {result.beta_score:.3f})" if result.reranked and result.beta_score else ""
        _line(console, f"{result.rank}. {result.passage.id}  score {result.score:.3f}{stage}", style="bold")
        if result.passage.title:
            _line(console, f"   {result.passage.title}", style="italic")
        _line(console, f"   {_snippet(result.passage.text)}")
        if reasons is not None:
            _explain(console, reasons[i])
    _line(console, f"{len(results):,} passages in {seconds * 1000:.0f} ms", style="dim")


def show_info(facts: Mapping[str, Any]) -> None:
    """Print facts as aligned lines."""
    console = _console()
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) and name != "format" else _flat(value)
        _line(console, f"{name:<{width}}  {shown}")


def write_json(value: Any) -> None:
    """Write one JSON value; ASCII, so that any text survives any terminal or pipe."""
    sys.stdout.write(json.dumps(value, indent=2, default=list) + "\n")


def printable(text: str) -> str:
    """The text on one line, without characters that a terminal would obey or cannot encode."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _console() -> Console:
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def _line(console: Console, text: str, style: str = "") -> None:
    indent = len(text) - len(text.lstrip(" "))
    safe = " " * indent + "".join(c if c.isprintable() else " " for c in text[indent:])
    encoding = console.encoding or "utf-8"
    console.print(Text(safe.encode(encoding, "replace").decode(encoding), style=style))


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_flat(v)}" for name, v in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return " ".join(_flat(v) for v in value)
    return str(value)


def _snippet(text: str) -> str:
    # Only as much as can be shown is looked at, however long the passage.
    whole = printable(text[: 4 * _SNIPPET])
    return whole if len(whole) <= _SNIPPET and len(text) <= 4 * _SNIPPET else whole[:_SNIPPET].rstrip() + " ..."


def _explain(console: Console, reason: Explanation) -> None:
    for part in reason.parts[:_PARTS]:
        origin = "in the query" if part.in_query else "added by the model"
        _line(console, f"   {part.contribution:8.3f}  {part.token:<16} {origin}")
    rest = reason.parts[_PARTS:]
    if rest:
        _line(console, f"   {sum(p.contribution for p in rest):8.3f}  {len(rest):,} more tokens")
    if reason.missed:
        _line(console, f"   not in the passage: {' '.join(reason.missed)}")


def _result_value(result: SearchResult, reason: Explanation | None) -> dict[str, Any]:
    value: dict[str, Any] = {
        "rank": result.rank,
        "id": result.passage.id,
        "score": result.score,
        "beta_score": result.beta_score,
        "reranked": result.reranked,
        "title": result.passage.title,
        "text": result.passage.text,
        "metadata": dict(result.passage.metadata),
    }
    if reason is not None:
        value["explanation"] = {
            "length_factor": reason.length_factor,
            "parts": [
                {"token": p.token, "weight": p.weight, "contribution": p.contribution, "in_query": p.in_query}
                for p in reason.parts
            ],
            "missed": list(reason.missed),
        }
    return value


def _list_files(console: Console, what: str, files: Sequence[tuple[str, str]]) -> None:
    if not files:
        return
    _line(console, f"{what} {len(files):,}:")
    for path, reason in files[:_FILES]:
        _line(console, f"   {path}: {reason}")
    if len(files) > _FILES:
        _line(console, f"   and {len(files) - _FILES:,} more")
