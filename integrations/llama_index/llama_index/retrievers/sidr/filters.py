"""LlamaIndex's metadata filters in the engine's language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from sidr_rag import InvalidTypeError

Filters = MetadataFilters | Mapping[str, Any]
"""LlamaIndex's filters, or one in the engine's own language (see `sidr_rag.search.filters`)."""

_OPERATORS = {
    FilterOperator.EQ: "eq",
    FilterOperator.NE: "ne",
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
    FilterOperator.IN: "in",
    FilterOperator.NIN: "nin",
    FilterOperator.ANY: "any",
    FilterOperator.ALL: "all",
    FilterOperator.CONTAINS: "contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "text_match",
}


def engine_filter(filters: Filters | None) -> dict[str, Any] | None:
    """The same filter for `SiDR.search`; None if nothing is filtered.

    NOT means that none of the filters matches, as in LlamaIndex's own stores; no filters at all match every node.

    Raises:
        InvalidTypeError: if it is neither `MetadataFilters` nor a mapping. A mapping is checked by the engine.
    """
    if filters is None:
        return None
    if isinstance(filters, Mapping):
        return dict(filters)
    if not isinstance(filters, MetadataFilters):
        raise InvalidTypeError(f"filters is a {type(filters).__name__}; give MetadataFilters, a mapping, or None")
    parts = [
        _condition(part) if isinstance(part, MetadataFilter) else engine_filter(part) or {} for part in filters.filters
    ]
    if not parts:
        return None
    if filters.condition == FilterCondition.NOT:
        return {"not": {"or": parts}}
    return {"or" if filters.condition == FilterCondition.OR else "and": parts}


def all_of(*filters: dict[str, Any] | None) -> dict[str, Any] | None:
    """The engine's filter that every given one holds; None if none is given."""
    given = [filter for filter in filters if filter is not None]
    return {"and": given} if given else None


def _condition(filter: MetadataFilter) -> dict[str, Any]:
    test: dict[str, Any]
    if filter.operator == FilterOperator.IS_EMPTY:
        test = {"is_empty": True}
    elif filter.operator == FilterOperator.TEXT_MATCH:
        # "contains" minds the case but also takes list elements; "text_match" is for strings alone.
        test = {"contains": filter.value, "text_match": filter.value}
    else:
        test = {_OPERATORS[filter.operator]: filter.value}
    # A key under "path" is never taken for an operator.
    return {"path": [filter.key], **test}
