"""On request, beside what is found: why it has its score, and what the search cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sidr_rag import InvalidInputError, InvalidTypeError, SiDR

EXPLANATION_KEY = "sidr_explanation"
"""The metadata key of a found document's explanation."""
COSTS_KEY = "sidr_costs"
"""The metadata key of the costs of the search that found a document."""
REQUESTS = ("explain", "costs")

_OF_THE_SCORE = ("search", "first_stage", "query_repr", "max_active_dims", "weight_floor")

Found = TypeVar("Found")


def flag(name: str, value: Any) -> bool:
    """Whether something is asked for.

    Raises:
        InvalidTypeError: if the value is neither True nor False.
    """
    if not isinstance(value, bool):
        raise InvalidTypeError(f"{name}={value!r} must be True or False")
    return value


def with_reasons(
    engine: SiDR,
    query: str,
    find: Callable[[], Sequence[Found]],
    passage_id: Callable[[Found], str],
    options: Mapping[str, Any],
    *,
    explain: bool,
    costs: bool,
) -> list[tuple[Found, dict[str, Any]]]:
    """What a search finds, each with the metadata that were asked for, as JSON values.

    Args:
        engine: where.
        query: the question.
        find: the search; only what it spends is counted.
        passage_id: of something found.
        options: of the search; those that shape the first stage's score are the explanation's, too.
        explain: `Explanation.to_dict()` under `EXPLANATION_KEY`: the first stage's score by token. None for a document
            that was deleted in the meantime.
        costs: `Costs.to_dict()` under `COSTS_KEY`, the same for every document of the search.

    Raises:
        InvalidInputError: if the first stage's score has no parts by token.
    """
    with engine.measured() as spent:
        found = find()
    of_the_score = {name: value for name, value in options.items() if name in _OF_THE_SCORE}
    told = []
    for item in found:
        metadata: dict[str, Any] = {COSTS_KEY: spent.to_dict()} if costs else {}
        if explain:
            metadata[EXPLANATION_KEY] = _explanation(engine, query, passage_id(item), of_the_score)
        told.append((item, metadata))
    return told


def _explanation(engine: SiDR, query: str, passage_id: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        return engine.explain(query, passage_id, **options).to_dict()
    except InvalidInputError:
        if engine.get([passage_id]):
            raise
        return None
