"""Explanations for people: a rich table and a matplotlib chart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidr_rag.errors import MissingExtraError

if TYPE_CHECKING:
    from sidr_rag.explain import Explanation, TokenPart

_ROWS = 20
_COLOURS = {"query": "#1f6f8b", "model": "#d98e04", "rest": "#9a9a9a"}


def origin(part: TokenPart) -> str:
    """Where a token comes from: the query's words, or the model's expansion of query or passage."""
    if not part.in_query:
        return "added to the query"
    return "in the query" if part.in_passage else "added to the passage"


def table(explanation: Explanation) -> Any:
    """A rich table of the greatest parts, their sum at the foot."""
    from rich.table import Table
    from rich.text import Text

    full = explanation.search != "beta"
    shown = Table(title=f"{explanation.search} score of {explanation.passage_id}", show_footer=True)
    shown.add_column("token", footer="score")
    shown.add_column("query", justify="right")
    shown.add_column("passage" if full else "levels", justify="right")
    shown.add_column("adds", justify="right", footer=f"{explanation.score:.3f}")
    shown.add_column("origin")
    for part in explanation.parts[:_ROWS]:
        held = f"{part.passage_weight:.3f}" if part.passage_weight is not None else str(part.levels)
        # As text: a token may look like markup.
        shown.add_row(Text(part.token), f"{part.weight:.3f}", held, f"{part.contribution:.3f}", origin(part))
    rest = explanation.parts[_ROWS:]
    if rest:
        shown.add_row(f"{len(rest):,} more", "", "", f"{sum(p.contribution for p in rest):.3f}", "")
    for token in explanation.missed:
        shown.add_row(Text(token), "", "", "0", "not in the passage")
    return shown


def chart(explanation: Explanation, ax: Any, most: int) -> Any:
    """A bar for each of the greatest parts, and one for all others; returns the axes.

    Raises:
        MissingExtraError: if matplotlib is absent.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise MissingExtraError("matplotlib", "explain", "Explanation.plot") from error

    parts, rest = explanation.parts[:most], explanation.parts[most:]
    # Dollar signs would start a formula.
    bars = [(p.token.replace("$", r"\$"), p.contribution, "query" if p.in_query else "model") for p in parts]
    if rest:
        bars.append((f"{len(rest):,} more", sum(p.contribution for p in rest), "rest"))
    if ax is None:
        ax = Figure(figsize=(6, 0.6 + 0.28 * max(1, len(bars))), layout="constrained").add_subplot()
    ax.barh(range(len(bars)), [value for _, value, _ in bars], color=[_COLOURS[kind] for _, _, kind in bars])
    ax.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    ax.invert_yaxis()
    ax.set_xlabel(f"part of the {explanation.search} score ({explanation.score:.3f})")
    names = {"query": "in the query", "model": "added by the model", "rest": "all others"}
    kinds = dict.fromkeys(kind for _, _, kind in bars)
    ax.legend(handles=[Patch(color=_COLOURS[kind], label=names[kind]) for kind in kinds], loc="lower right")
    return ax
