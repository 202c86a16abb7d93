"""Evaluation: judged datasets, every kind of search in one table with its cost, and tests of differences."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidr_rag.eval.answers import AnswerJudge as AnswerJudge
    from sidr_rag.eval.answers import answer_tokens as answer_tokens
    from sidr_rag.eval.answers import has_answer as has_answer
    from sidr_rag.eval.answers import success_at_k as success_at_k
    from sidr_rag.eval.bm25 import Bm25 as Bm25
    from sidr_rag.eval.costs import Cost as Cost
    from sidr_rag.eval.datasets import Dataset as Dataset
    from sidr_rag.eval.datasets import load_beir as load_beir
    from sidr_rag.eval.datasets import load_dataset as load_dataset
    from sidr_rag.eval.datasets import load_dpr as load_dpr
    from sidr_rag.eval.measures import measure as measure
    from sidr_rag.eval.report import Report as Report
    from sidr_rag.eval.report import Result as Result
    from sidr_rag.eval.runner import evaluate as evaluate
    from sidr_rag.eval.searches import Bm25Search as Bm25Search
    from sidr_rag.eval.searches import EngineSearch as EngineSearch
    from sidr_rag.eval.searches import PairSearch as PairSearch
    from sidr_rag.eval.searches import named_searches as named_searches
    from sidr_rag.eval.significance import Comparison as Comparison
    from sidr_rag.eval.significance import bootstrap as bootstrap
    from sidr_rag.eval.significance import holm as holm
    from sidr_rag.eval.tables import markdown as markdown
    from sidr_rag.eval.trec import read_qrels as read_qrels
    from sidr_rag.eval.trec import read_run as read_run
    from sidr_rag.eval.trec import write_qrels as write_qrels
    from sidr_rag.eval.trec import write_run as write_run

_HOMES = {
    "AnswerJudge": "answers",
    "Bm25": "bm25",
    "Bm25Search": "searches",
    "Comparison": "significance",
    "Cost": "costs",
    "Dataset": "datasets",
    "EngineSearch": "searches",
    "PairSearch": "searches",
    "Report": "report",
    "Result": "report",
    "answer_tokens": "answers",
    "bootstrap": "significance",
    "evaluate": "runner",
    "has_answer": "answers",
    "holm": "significance",
    "load_beir": "datasets",
    "load_dataset": "datasets",
    "load_dpr": "datasets",
    "markdown": "tables",
    "measure": "measures",
    "named_searches": "searches",
    "read_qrels": "trec",
    "read_run": "trec",
    "success_at_k": "answers",
    "write_qrels": "trec",
    "write_run": "trec",
}

__all__ = [
    "AnswerJudge",
    "Bm25",
    "Bm25Search",
    "Comparison",
    "Cost",
    "Dataset",
    "EngineSearch",
    "PairSearch",
    "Report",
    "Result",
    "answer_tokens",
    "bootstrap",
    "evaluate",
    "has_answer",
    "holm",
    "load_beir",
    "load_dataset",
    "load_dpr",
    "markdown",
    "measure",
    "named_searches",
    "read_qrels",
    "read_run",
    "success_at_k",
    "write_qrels",
    "write_run",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
