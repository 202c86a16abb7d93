"""What one search asks for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.inputs import as_count
from sidr_rag.rerank.fusion import first_stage_of
from sidr_rag.rerank.second import check_reranker
from sidr_rag.search.filters import Filter, parse_filter

if TYPE_CHECKING:
    from typing import TypeAlias

    from sidr_rag.encoder import Encoder
    from sidr_rag.protocols import Reranker
    from sidr_rag.rerank.bi_encoder import BiEncoder
    from sidr_rag.rerank.bm25 import Bm25
    from sidr_rag.rerank.fusion import Fusion
    from sidr_rag.rerank.second import Blend

    FirstStageChoice: TypeAlias = str | Bm25 | Fusion
    RerankerChoice: TypeAlias = str | Reranker | Blend | BiEncoder | Encoder | Callable[..., Any]

_SEARCHES = ("beta", "full", "alpha", "auto")
_REPRESENTATIONS = ("theta", "lex", "bin", "bot")


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of `SiDR.search`."""

    k: int
    search: str
    rerank: int
    filter: Mapping[str, Any] | None
    min_score: float | None
    first_stage: FirstStageChoice
    reranker: RerankerChoice | None
    query_repr: str
    max_active_dims: int | None
    weight_floor: float


@dataclass(frozen=True)
class Request:
    """What one search asks for; checked when made.

    Raises:
        InvalidInputError, InvalidTypeError: naming the argument, the value and the fix.
    """

    k: int = 10
    search: str = "beta"
    rerank: int = 0
    filter: Filter | None = None
    min_score: float | None = None
    first_stage: FirstStageChoice = "sidr"
    reranker: RerankerChoice | None = None
    query_repr: str = "theta"
    max_active_dims: int | None = None
    weight_floor: float = 0.0

    @classmethod
    def of(cls, *, filter: Mapping[str, Any] | None, **values: Any) -> Request:
        """Check the arguments of `SiDR.search`."""
        values["k"] = as_count("k", values["k"])
        values["rerank"] = as_count("rerank", values["rerank"])
        if values["max_active_dims"] is not None:
            values["max_active_dims"] = as_count("max_active_dims", values["max_active_dims"], least=1)
        values["weight_floor"] = _share("weight_floor", values.get("weight_floor", 0.0))
        _one_of("search", values["search"], _SEARCHES)
        first_stage_of(values["first_stage"])
        _one_of("query_repr", values["query_repr"], _REPRESENTATIONS)
        check_reranker(values["reranker"])
        least = values["min_score"]
        if least is not None and (isinstance(least, bool) or not isinstance(least, (int, float)) or least != least):
            raise InvalidInputError(f"min_score={least!r} must be a number or None")
        if values["search"] in ("full", "alpha") and values["rerank"]:
            raise InvalidInputError(
                f"rerank={values['rerank']} needs search='beta'; {values['search']!r} scores every passage"
            )
        if values["search"] in ("full", "alpha") and values["weight_floor"]:
            raise InvalidInputError(
                f"weight_floor={values['weight_floor']!r} needs search='beta'; {values['search']!r} searches no "
                "posting lists"
            )
        return cls(filter=parse_filter(filter), **values)

    @property
    def representation(self) -> str:
        """What stands for the query in the first stage."""
        return "bot" if self.first_stage == "lexical" or self.search == "alpha" else self.query_repr


class FilledRequest(Request):
    """A beta search that full search fills up where it finds fewer than k; what `search="auto"` may stand for."""

    @classmethod
    def like(cls, request: Request) -> FilledRequest:
        """The same with filling up."""
        return cls(**{field.name: getattr(request, field.name) for field in fields(Request)})


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidTypeError(f"{name}={value!r} is a {type(value).__name__}; give a number from 0 to 1")
    if not 0 <= value <= 1:
        raise InvalidInputError(f"{name}={value!r} must be a share from 0 to 1")
    return float(value)


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, allowed))}")
