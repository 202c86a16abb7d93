"""The options of a search and of a retriever: known by name, checked by the engine, kept beside a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from langchain_sidr.reasons import REQUESTS, flag
from sidr_rag import IndexFormatError, InvalidTypeError
from sidr_rag.pipeline import Request
from sidr_rag.retriever_settings import FILE, load_settings

SEARCH_OPTIONS = (
    "k",
    "rerank",
    "search",
    "filter",
    "min_score",
    "reranker",
    "first_stage",
    "query_repr",
    "max_active_dims",
    "weight_floor",
)
_KEPT = (*SEARCH_OPTIONS, *REQUESTS, "score_key", "id_key", "title_key")
_DEFAULTS: dict[str, Any] = {
    "k": 4,
    "rerank": 0,
    "search": "beta",
    "filter": None,
    "min_score": None,
    "reranker": None,
    "first_stage": "sidr",
    "query_repr": "theta",
    "max_active_dims": None,
    "weight_floor": 0.0,
}


def checked(name: str, value: Any) -> Any:
    """One option's value, as the engine takes it.

    Raises:
        InvalidInputError, InvalidTypeError: naming the option, the value and the fix.
    """
    if name in REQUESTS:
        return flag(name, value)
    request = Request.of(**{**_DEFAULTS, name: value})
    return value if name == "filter" else getattr(request, name)


def only_known(options: Mapping[str, Any], known: tuple[str, ...] = (*SEARCH_OPTIONS, *REQUESTS)) -> dict[str, Any]:
    """The options of one call.

    Raises:
        InvalidTypeError: for an unknown one; names it and the known ones.
    """
    # LangChain hands its own "verbose" on to the retriever.
    unknown = sorted(set(options) - {*known, "verbose"})
    if unknown:
        raise InvalidTypeError(f"unknown search options {', '.join(map(repr, unknown))}; known are {', '.join(known)}")
    return {name: value for name, value in options.items() if name in known}


def query_text(query: Any) -> str:
    """The question of one call.

    Raises:
        InvalidTypeError: if it is no string.
    """
    if not isinstance(query, str):
        raise InvalidTypeError(f"query is a {type(query).__name__}; give a string, or use batch for several")
    return query


def split_options(cls: type[BaseModel], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are attributes of a retriever, checked before anything is indexed, and the engine's."""
    own = {name: value for name, value in options.items() if name in cls.model_fields and name != "engine"}
    draft = cls.model_construct()
    for name, value in own.items():
        setattr(draft, name, value)
    return own, {name: value for name, value in options.items() if name not in own}


def options_to_keep(retriever: BaseModel) -> dict[str, Any]:
    """A retriever's options as JSON values, for beside its store; objects as re-ranker or first stage are left out."""
    options = {name: getattr(retriever, name) for name in _KEPT}
    return {
        name: value
        for name, value in options.items()
        if name not in ("reranker", "first_stage") or isinstance(value, str)
    }


def kept_options(cls: type[BaseModel], folder: Path) -> dict[str, Any]:
    """The options that are kept beside a store; unknown ones are ignored.

    Raises:
        IndexFormatError: if they cannot be read or used; names the file.
    """
    known = {name: value for name, value in load_settings(folder).items() if name in _KEPT}
    try:
        return split_options(cls, known)[0]
    except (TypeError, ValueError) as e:
        raise IndexFormatError(f"{folder / FILE}: {e}; mend the file, or remove it to use the defaults") from e
