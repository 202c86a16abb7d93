"""The searches that can be compared, and their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sidr_rag.encoder.sparsify import REPRESENTATIONS
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.inputs import as_count
from sidr_rag.options import WeightingChoice
from sidr_rag.pipeline import Request
from sidr_rag.protocols import Reranker
from sidr_rag.rerank.second import NAMED


@dataclass(frozen=True)
class EngineSearch:
    """A search of `SiDR.search` with a weighting; see there for the arguments.

    Attributes:
        weighting: "default" (the model's own levels, idf and length), "binary" (the paper's), or a `Weighting`.
    """

    weighting: WeightingChoice = "default"
    search: str = "beta"
    rerank: int = 0
    reranker: str | Reranker | None = None
    query_repr: str = "theta"
    first_stage: str = "sidr"
    max_active_dims: int | None = None

    @property
    def whole_corpus(self) -> bool:
        """Whether every passage must be embedded."""
        return self.search != "beta"


@dataclass(frozen=True)
class Bm25Search:
    """BM25 by bm25s (Lucene's form), alone or with its best passages re-ranked by the model.

    Attributes:
        words: "stemmed" (English stop words, PyStemmer) or "wordpiece" (the model's own tokens).
        k1, b: BM25's constants.
        rerank: m; 0 for BM25 alone.
        reranker: any second stage that `SiDR.search` takes; None and "blend" for the model's way, BM25's score blended
            in its share.
        weighting: of the query where it meets V_theta of passages, as in `EngineSearch`.
    """

    words: Literal["stemmed", "wordpiece"] = "stemmed"
    k1: float = 0.9
    b: float = 0.4
    rerank: int = 0
    reranker: str | Reranker | None = None
    weighting: WeightingChoice = "default"


@dataclass(frozen=True)
class PairSearch:
    """A search over representations that the engine keeps no index of: one pair of the paper's ablation table.

    Attributes:
        query_repr: "theta", "lex", "bin" or "bot".
        passage_repr: the same, of every passage.
    """

    query_repr: str
    passage_repr: str


Search: TypeAlias = EngineSearch | Bm25Search | PairSearch

PAPER_PAIRS = ("theta:theta", "theta:bin", "theta:lex", "theta:bot", "bin:bot", "lex:bot", "bot:bot")
"""The rows of the paper's table on term weighting and expansion, as query:passage."""

_KNOWN = (
    "beta, beta-binary, lexical, bot, full, full-binary, alpha, alpha-binary, late, late-both, late-theta, "
    "late-binary, bm25, bm25-wordpiece, bm25+late, bm25+late-theta, bm25+late-binary, a pair such as theta:lex, or "
    "pairs; re-ranking names may end in @m, as late@20"
)
_LATE = re.compile(r"(?P<first>bm25\+|)late(-(?P<kind>[a-z_]+))?(@(?P<m>[0-9]+))?")
_PLAIN: Mapping[str, Search] = {
    "beta": EngineSearch(),
    "beta-binary": EngineSearch("binary"),
    "lexical": EngineSearch(first_stage="lexical"),
    "bot": EngineSearch("binary", query_repr="bot"),
    "full": EngineSearch(search="full"),
    "full-binary": EngineSearch("binary", search="full"),
    "alpha": EngineSearch(search="alpha"),
    "alpha-binary": EngineSearch("binary", search="alpha"),
}


def named_searches(
    names: Sequence[str], *, rerank: Sequence[int] = (100,), k1: float = 0.9, b: float = 0.4
) -> dict[str, Search]:
    """The searches that names stand for, by name, in the order given.

    `beta` is the bag-of-tokens index with the model's own weighting and `beta-binary` the paper's; `lexical` is `beta`
    with the query's own words alone; `bot` the plain overlap of tokens. `full` and `alpha` embed every passage, and
    weigh the query as `beta` does; `full-binary` and `alpha-binary` take its vector as it is, as the paper does. `late`
    re-ranks `beta` in the model's own way, `late-both` by both of its heads, `late-theta` by V_theta alone;
    `late-binary` re-ranks `beta-binary` by V_theta alone, which is the paper's late parametric search; `bm25+late` and
    the like re-rank BM25. `theta:lex` and the like name the representations of query and passage, and `pairs` all of
    the paper's table.

    Args:
        names: those names; of the ones that re-rank, each m of `rerank` gives one, named `late@20` and so on.
        rerank: how many candidates are re-ranked where a name does not say so itself.
        k1: of BM25.
        b: of BM25.

    Raises:
        InvalidInputError, InvalidTypeError: naming what is not known, or if a search comes twice.
    """
    if isinstance(names, str):
        raise InvalidTypeError(f"searches={names!r} is a str; give a list of names")
    sizes = [as_count("rerank", m, least=1) for m in rerank]
    found: dict[str, Search] = {}
    for name in names:
        for label, search in _named(name, sizes, k1, b):
            if label in found:
                raise InvalidInputError(f"searches: {label!r} comes twice")
            found[label] = check_search(search)
    if not found:
        raise InvalidInputError(f"searches: none given; choose of {_KNOWN}")
    return found


def check_search(search: Search) -> Search:
    """Check a search's arguments before anything is indexed.

    Raises:
        InvalidInputError, InvalidTypeError: as `SiDR.search`, and for what is no search.
    """
    if isinstance(search, EngineSearch):
        _request(
            search=search.search,
            rerank=search.rerank,
            reranker=search.reranker,
            query_repr=search.query_repr,
            first_stage=search.first_stage,
            max_active_dims=search.max_active_dims,
        )
    elif isinstance(search, Bm25Search):
        _request(rerank=search.rerank, reranker=search.reranker)
        if isinstance(search.reranker, str) and search.reranker not in NAMED:
            raise InvalidInputError(
                f"reranker={search.reranker!r} cannot re-rank BM25; choose one of {', '.join(map(repr, NAMED))}"
            )
        if search.words not in ("stemmed", "wordpiece"):
            raise InvalidInputError(f"words={search.words!r} is not known; choose 'stemmed' or 'wordpiece'")
        if not (search.k1 >= 0 and 0 <= search.b <= 1):
            raise InvalidInputError(f"k1={search.k1!r}, b={search.b!r}: k1 must be at least 0 and b between 0 and 1")
    elif isinstance(search, PairSearch):
        for value in (search.query_repr, search.passage_repr):
            if value not in REPRESENTATIONS:
                raise InvalidInputError(f"pair: {value!r} is no representation; choose of {', '.join(REPRESENTATIONS)}")
    else:
        raise InvalidTypeError(f"searches: a {type(search).__name__} is no search; give a name or an EngineSearch")
    return search


def _named(name: str, sizes: Sequence[int], k1: float, b: float) -> list[tuple[str, Search]]:
    if name in _PLAIN:
        return [(name, _PLAIN[name])]
    if name == "bm25":
        return [(name, Bm25Search(k1=k1, b=b))]
    if name == "bm25-wordpiece":
        return [(name, Bm25Search("wordpiece", k1, b))]
    if name == "pairs":
        return [(pair, _pair(*pair.split(":"))) for pair in PAPER_PAIRS]
    query_repr, colon, passage_repr = name.partition(":")
    if colon and query_repr in REPRESENTATIONS and passage_repr in REPRESENTATIONS:
        return [(name, _pair(query_repr, passage_repr))]
    late = _LATE.fullmatch(name)
    if late is None:
        raise InvalidInputError(f"searches: {name!r} is not known; choose of {_KNOWN}")
    stem = name.partition("@")[0]
    wanted = sizes if late["m"] is None else [as_count("rerank", int(late["m"]), least=1)]
    return [(f"{stem}@{m}", _late(late["first"], late["kind"], m, k1, b)) for m in wanted]


def _late(first: str, kind: str | None, m: int, k1: float, b: float) -> Search:
    weighting: WeightingChoice = "binary" if kind == "binary" else "default"
    reranker = "theta" if kind == "binary" else kind
    if first:
        return Bm25Search(k1=k1, b=b, rerank=m, reranker=reranker, weighting=weighting)
    return EngineSearch(weighting, rerank=m, reranker=reranker)


def _pair(query_repr: str, passage_repr: str) -> Search:
    # The engine's own searches where there is one: its index, and its bits.
    if passage_repr == "bot":
        return EngineSearch("binary", query_repr=query_repr)
    if passage_repr == "theta":
        return EngineSearch("binary", search="full", query_repr=query_repr)
    return PairSearch(query_repr, passage_repr)


def _request(**changed: object) -> None:
    values = {
        "k": 10,
        "search": "beta",
        "rerank": 0,
        "min_score": None,
        "first_stage": "sidr",
        "reranker": None,
        "query_repr": "theta",
        "max_active_dims": None,
    }
    Request.of(filter=None, **{**values, **changed})
