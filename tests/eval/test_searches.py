"""Names of searches, and the searches they stand for."""

import pytest

from sidr_rag import Weighting
from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.eval import Bm25Search, EngineSearch, PairSearch, named_searches
from sidr_rag.eval.searches import PAPER_PAIRS, check_search


def test_names_stand_for_searches():
    assert named_searches(
        ["beta", "beta-binary", "lexical", "bot", "full", "alpha", "bm25", "bm25-wordpiece", "theta:lex", "lex:bot"],
        k1=1.2,
        b=0.75,
    ) == {
        "beta": EngineSearch(),
        "beta-binary": EngineSearch("binary"),
        "lexical": EngineSearch(first_stage="lexical"),
        "bot": EngineSearch("binary", query_repr="bot"),
        "full": EngineSearch(search="full"),
        "alpha": EngineSearch(search="alpha"),
        "bm25": Bm25Search(k1=1.2, b=0.75),
        "bm25-wordpiece": Bm25Search("wordpiece", k1=1.2, b=0.75),
        "theta:lex": PairSearch("theta", "lex"),
        "lex:bot": EngineSearch("binary", query_repr="lex"),
    }


def test_late_searches_come_once_for_each_m_or_with_their_own():
    names = ["late", "late-theta", "late-both@4", "late-all@6", "late-binary@5", "bm25+late", "bm25+late-theta@7"]
    names.append("bm25+late-binary@3")
    assert named_searches(names, rerank=(20, 100)) == {
        "late@20": EngineSearch(rerank=20),
        "late@100": EngineSearch(rerank=100),
        "late-theta@20": EngineSearch(rerank=20, reranker="theta"),
        "late-theta@100": EngineSearch(rerank=100, reranker="theta"),
        "late-both@4": EngineSearch(rerank=4, reranker="both"),
        "late-all@6": EngineSearch(rerank=6, reranker="all"),
        "late-binary@5": EngineSearch("binary", rerank=5, reranker="theta"),
        "bm25+late@20": Bm25Search(rerank=20),
        "bm25+late@100": Bm25Search(rerank=100),
        "bm25+late-theta@7": Bm25Search(rerank=7, reranker="theta"),
        "bm25+late-binary@3": Bm25Search(rerank=3, reranker="theta", weighting="binary"),
    }


def test_pairs_are_the_rows_of_the_paper_s_table():
    found = named_searches(["pairs"])
    assert tuple(found) == PAPER_PAIRS
    assert found["theta:theta"] == EngineSearch("binary", search="full")
    assert found["theta:bot"] == EngineSearch("binary")
    assert found["theta:bin"] == PairSearch("theta", "bin")


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["betta"], "'betta' is not known"),
        (["late-nothing"], "'nothing'"),
        (["late@x"], "'late@x'"),
        (["late@0"], "rerank=0"),
        (["theta:dense"], "'theta:dense'"),
        (["bm25+beta"], r"'bm25\+beta'"),
        (["beta", "beta"], "'beta' comes twice"),
        (["late", "late@100"], "'late@100' comes twice"),
        ([], "none given"),
    ],
)
def test_what_is_not_known_is_named(names, named):
    with pytest.raises(InvalidInputError, match=named):
        named_searches(names)


def test_a_string_is_no_list_of_names():
    with pytest.raises(InvalidTypeError, match="searches='beta'"):
        named_searches("beta")


@pytest.mark.parametrize(
    ("search", "error", "named"),
    [
        (EngineSearch(search="gamma"), InvalidInputError, "search='gamma'"),
        (EngineSearch(query_repr="x"), InvalidInputError, "query_repr='x'"),
        (EngineSearch(search="full", rerank=5), InvalidInputError, "rerank=5"),
        (EngineSearch(rerank=5, reranker=object()), InvalidTypeError, "reranker is a object"),
        (Bm25Search(words="letters"), InvalidInputError, "words='letters'"),
        (Bm25Search(b=2.0), InvalidInputError, "b=2.0"),
        (Bm25Search(rerank=-1), InvalidInputError, "rerank=-1"),
        (PairSearch("theta", "x"), InvalidInputError, "'x' is no representation"),
        ("beta", InvalidTypeError, "a str is no search"),
    ],
)
def test_searches_are_checked_before_any_work(search, error, named):
    with pytest.raises(error, match=named):
        check_search(search)
    check_search(EngineSearch(Weighting(levels=(1, 2), gains=(1.0, 0.5))))
