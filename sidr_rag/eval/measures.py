"""Rank measures by ir-measures, and Success@k by answer strings beside them, query by query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from sidr_rag.eval.answers import AnswerJudge, Texts, successes
from sidr_rag.eval.datasets import Dataset
from sidr_rag.eval.trec import Run

QRELS_MEASURES = ("nDCG@10", "R@100", "RR@10")
ANSWER_MEASURES = ("Success(answers)@1", "Success(answers)@5", "Success(answers)@20", "Success(answers)@100")
_BY_ANSWERS = re.compile(r"Success\(answers\)@([1-9][0-9]*)")
_DEFAULT_DEPTH = 100

PerQuery = dict[str, NDArray[np.float64]]
"""Measure -> its value for each query, f64[n] in the order of `judged_queries`."""


def default_measures(dataset: Dataset) -> tuple[str, ...]:
    """nDCG@10, R@100 and RR@10 where there are judgements, and DPR's accuracies where there are answer strings."""
    return (*(QRELS_MEASURES if dataset.qrels else ()), *(ANSWER_MEASURES if dataset.answers else ()))


def check_measures(names: Sequence[str], dataset: Dataset) -> tuple[str, ...]:
    """The names, in ir-measures' own spelling.

    Raises:
        InvalidInputError: for an unknown name, or a measure that the dataset has nothing to measure by.
        MissingExtraError: if ir-measures is needed and absent.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidTypeError("measures must be a list of names, such as ['nDCG@10', 'R@100']")
    return tuple(_checked(name, dataset) for name in names)


def depth_of(names: Sequence[str]) -> int:
    """How many passages of a ranking the measures look at; at least 10, and 100 where one has no cut-off."""
    cuts = [_BY_ANSWERS.fullmatch(name) for name in names]
    depths = [
        int(m[1]) if m else _parsed(name).params.get("cutoff", _DEFAULT_DEPTH)
        for name, m in zip(names, cuts, strict=True)
    ]
    return max([10, *depths])


def judged_queries(name: str, dataset: Dataset) -> list[str]:
    """The queries that a measure is the mean over: those with judgements, or those with answer strings."""
    return list(dataset.answers if _BY_ANSWERS.fullmatch(name) else dataset.qrels)


def measure(run: Run, dataset: Dataset, names: Sequence[str], texts: Texts | AnswerJudge | None = None) -> PerQuery:
    """Measure a run, query by query; a query that found nothing, or that the run lacks, counts 0.

    Passages count in the run's own order, so equal scores stay as they are.

    Args:
        run: what was found, best first.
        dataset: judgements and answers.
        names: as ir-measures names them, and `Success(answers)@k` for DPR's top-k accuracy by answer strings.
        texts: of the passages found, for the measures by answer strings.

    Raises:
        InvalidInputError: as `check_measures`, or if `texts` is needed and absent.
        MissingExtraError: if ir-measures is needed and absent.
    """
    names = check_measures(names, dataset)
    by_answers = {name: int(m[1]) for name in names if (m := _BY_ANSWERS.fullmatch(name))}
    values = _by_qrels(run, dataset, [name for name in names if name not in by_answers])
    if by_answers:
        if texts is None:
            raise InvalidInputError(f"texts=None: {next(iter(by_answers))} needs the texts of the passages found")
        judge = texts if isinstance(texts, AnswerJudge) else AnswerJudge(texts)
        ranks = judge.first_ranks(run, dataset.answers)
        values.update({name: successes(ranks, k) for name, k in by_answers.items()})
    return {name: values[name] for name in names}


def _by_qrels(run: Run, dataset: Dataset, names: Sequence[str]) -> PerQuery:
    values = {name: np.zeros(len(dataset.qrels)) for name in names}
    if not names:
        return values
    place = {query_id: i for i, query_id in enumerate(dataset.qrels)}
    # Places for scores: tools order equal scores each in its own way.
    ranked = {
        query_id: {passage_id: float(-rank) for rank, (passage_id, _) in enumerate(found)}
        for query_id, found in run.items()
        if query_id in place and found
    }
    if ranked:
        for metric in _ir_measures().iter_calc([_parsed(name) for name in names], dataset.qrels, ranked):
            values[str(metric.measure)][place[metric.query_id]] = metric.value
    return values


def _checked(name: str, dataset: Dataset) -> str:
    if _BY_ANSWERS.fullmatch(name):
        if not dataset.answers:
            raise InvalidInputError(
                f"measures: {name} needs answer strings, and {dataset.name} ({dataset.split}) has none"
            )
        return name
    if not dataset.qrels:
        raise InvalidInputError(
            f"measures: {name} needs judgements, and {dataset.name} has answer strings alone; "
            "use measures such as Success(answers)@1"
        )
    return str(_parsed(name))


def _parsed(name: str) -> Any:
    tool = _ir_measures()
    try:
        parsed = tool.parse_measure(name)
        _ = parsed.params  # fails for a parameter that the measure does not have
        tool.evaluator([parsed], {"query": {"passage": 1}})  # fails for what no installed tool measures
        return parsed
    except (NameError, ValueError, TypeError, KeyError, SyntaxError) as error:
        raise InvalidInputError(
            f"measures: {name!r} is not known; use names of ir-measures such as nDCG@10, R@100, RR@10, Success@5, "
            "or Success(answers)@5"
        ) from error


def _ir_measures() -> Any:
    try:
        return import_module("ir_measures")
    except ImportError as error:
        raise MissingExtraError("ir-measures", "eval", "measuring by judgements") from error
