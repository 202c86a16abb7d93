"""The options of a search: checked by the engine, and kept beside a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.retrievers.sidr.filters import Filters, engine_filter
from llama_index.retrievers.sidr.reasons import REQUESTS, checked_requests

from sidr_rag import IndexFormatError, InvalidTypeError
from sidr_rag.inputs import as_count
from sidr_rag.pipeline import Request
from sidr_rag.retriever_settings import FILE, load_settings

DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Request) if field.name not in ("k", "filter")}
"""The options of `SiDR.search` beside how many and which, with their defaults."""


def search_arguments(similarity_top_k: int, filters: Filters | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `SiDR.search`, checked.

    Raises:
        InvalidInputError, InvalidTypeError: naming the option, the value and the fix.
    """
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise InvalidTypeError(f"unknown options {', '.join(map(repr, unknown))}; known are {', '.join(DEFAULTS)}")
    arguments = {
        **DEFAULTS,
        **options,
        "k": as_count("similarity_top_k", similarity_top_k),
        "filter": engine_filter(filters),
    }
    Request.of(**arguments)
    return arguments


def split(options: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of these names, and the rest."""
    wanted = set(names)
    own = {name: value for name, value in options.items() if name in wanted}
    return own, {name: value for name, value in options.items() if name not in wanted}


def options_to_keep(
    options: Mapping[str, Any], similarity_top_k: int | None = None, filters: Filters | None = None
) -> dict[str, Any]:
    """Options as JSON values, for beside a store; objects as re-ranker or first stage are left out.

    `k` and `filter` are what every adapter reads; `filters` are LlamaIndex's own, for this one.
    """
    kept = {
        name: value
        for name, value in options.items()
        if name not in ("reranker", "first_stage") or value is None or isinstance(value, str)
    }
    if similarity_top_k is not None:
        kept["k"] = similarity_top_k
    kept["filter"] = engine_filter(filters)
    if isinstance(filters, MetadataFilters):
        kept["filters"] = filters.model_dump(mode="json")
    return kept


def kept_options(folder: Path) -> dict[str, Any]:
    """The options that are kept beside a store, `similarity_top_k` and `filters` among them; others are ignored.

    Raises:
        IndexFormatError: if they cannot be read or used; names the file.
    """
    kept = load_settings(folder)
    options = {name: value for name, value in kept.items() if name in DEFAULTS}
    try:
        filters = kept.get("filter")
        if kept.get("filters") is not None:
            filters = MetadataFilters.model_validate(kept["filters"])
        top = kept.get("k", 1)
        search_arguments(top, filters, options)
        checked_requests(kept)
    except (TypeError, ValueError) as e:
        raise IndexFormatError(f"{folder / FILE}: {e}; mend the file, or remove it to use the defaults") from e
    options.update({name: kept[name] for name in REQUESTS if name in kept})
    if "k" in kept:
        options["similarity_top_k"] = top
    if filters is not None:
        options["filters"] = filters
    return options
