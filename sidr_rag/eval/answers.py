"""Success@k by answer strings: a passage is right when its tokens hold an answer's tokens in a row, as in DPR."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from sidr_rag.eval.trec import Run
from sidr_rag.inputs import as_count

Texts = Mapping[str, str] | Callable[[Sequence[str]], Mapping[str, str]]
"""Texts by passage id, or a function that gives those of some ids."""

_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")
_QUERIES_AT_ONCE = 256


def answer_tokens(text: str) -> list[str]:
    """The tokens that answers are compared by.

    After canonical decomposition (NFD), a token is a run of letters, numbers and marks, or any other single character
    that is neither a separator nor a control; then it is put in lower case. This is the tokenization that DPR's
    evaluation inherits from DrQA.
    """
    return _spaced(text).split()


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether the tokens of one answer stand in `text` in a row; an answer without tokens is never found."""
    padded = _spaced(text)
    return any(needle in padded for needle in _needles(answers))


class AnswerJudge:
    """Finds the first right passage of each ranking; every passage is tokenized once, however often it is found.

    Args:
        texts: texts of passages, without their titles: DPR does not look for answers there.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts if callable(texts) else lambda ids: {i: texts[i] for i in ids}
        self._padded: dict[str, str] = {}

    def first_ranks(self, run: Run, answers: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
        """The rank of the first passage with an answer, for each query of `answers` in order, i64[n]; 0 if none.

        A query that the run lacks has found nothing.
        """
        ranks = np.zeros(len(answers), dtype=np.int64)
        items = list(answers.items())
        for start in range(0, len(items), _QUERIES_AT_ONCE):
            block = items[start : start + _QUERIES_AT_ONCE]
            self._tokenize({passage_id for query_id, _ in block for passage_id, _ in run.get(query_id, ())})
            for i, (query_id, strings) in enumerate(block, start=start):
                needles = _needles(strings)
                for rank, (passage_id, _) in enumerate(run.get(query_id, ()), start=1):
                    padded = self._padded[passage_id]
                    if any(needle in padded for needle in needles):
                        ranks[i] = rank
                        break
        return ranks

    def _tokenize(self, ids: set[str]) -> None:
        new = sorted(i for i in ids if i not in self._padded)
        texts = self._texts(new) if new else {}
        for passage_id in new:
            self._padded[passage_id] = _spaced(texts[passage_id])


def success_at_k(
    run: Run, answers: Mapping[str, Sequence[str]], texts: Texts, ks: Sequence[int] = (1, 5, 20, 100)
) -> dict[int, NDArray[np.float64]]:
    """DPR's top-k accuracy, query by query: 1 where one of the first k passages holds an answer string, else 0.

    Args:
        run: what was found.
        answers: answer strings by query id; the mean is over these queries, whether or not they are in the run.
        texts: of the passages found, without titles.
        ks: cut-offs, at least 1.

    Returns:
        For each k, f64[len(answers)] in the order of `answers`.
    """
    cuts = [as_count("ks", k, least=1) for k in ks]
    ranks = AnswerJudge(texts).first_ranks(run, answers)
    return {k: successes(ranks, k) for k in cuts}


def successes(ranks: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """1 where a rank is within the first k, 0 elsewhere and for rank 0, f64 like `ranks`."""
    return ((ranks > 0) & (ranks <= k)).astype(np.float64)


def _needles(answers: Iterable[str]) -> list[str]:
    if isinstance(answers, str):
        answers = [answers]
    padded = (_spaced(answer) for answer in answers)
    return [needle for needle in padded if needle != "  "]


def _spaced(text: str) -> str:
    # No token holds a space, so tokens in a row are a substring of the spaced text, which C code finds.
    if text.isascii():
        tokens = _ASCII_TOKEN.findall(text)
    else:
        tokens = _token_pattern().findall(unicodedata.normalize("NFD", text))
    # Joined before it is lowered: the space keeps a token's neighbours out of the rule for a final sigma.
    return f" {' '.join(tokens)} ".lower()


@lru_cache(maxsize=1)
def _token_pattern() -> re.Pattern[str]:
    """Runs of letters, marks and numbers, or one other character that is no separator, control or unassigned."""
    # Categories L, M and N make words; Z and C stand between tokens; the rest are tokens of one character.
    ranges: dict[str, list[str]] = {"word": [], "gap": [], "single": []}
    for kind, group in groupby(range(sys.maxunicode + 1), key=_kind):
        codes = list(group)
        ranges[kind].append(f"\\U{codes[0]:08x}-\\U{codes[-1]:08x}")
    word, gap = "".join(ranges["word"]), "".join(ranges["gap"])
    return re.compile(f"[{word}]+|[^{word}{gap}]")


def _kind(code: int) -> str:
    category = unicodedata.category(chr(code))[0]
    return "word" if category in "LMN" else "gap" if category in "ZC" else "single"
