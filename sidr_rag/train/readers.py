"""Readers: what tells how well a passage helps to answer a question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError
from sidr_rag.eval.answers import answer_tokens


class Reader(Protocol):
    """Any model that gives answers a likelihood: a language model, a classifier, a service."""

    def log_likelihoods(self, question: str, passages: Sequence[str], answers: Sequence[str]) -> NDArray[np.float32]:
        """For each passage, log p(answer | question, passage) of the likeliest answer: f32[len(passages)]."""
        ...


class UnigramReader:
    """A reader without parameters to load: each token of the answer is drawn from the passage, or from the background.

    log p(answer | passage) is the mean over the answer's tokens of
    log((1 - background) * share of the token in the passage + background * its share in all texts).

    Args:
        texts: what the background is counted on.
        background: its weight, between 0 and 1, both excluded.
    """

    def __init__(self, texts: Iterable[str], background: float = 0.1) -> None:
        if not 0 < background < 1:
            raise InvalidInputError(f"background is {background}; expected a share between 0 and 1, both excluded")
        self._counts: Counter[str] = Counter()
        for text in texts:
            self._counts.update(answer_tokens(text))
        self._total = sum(self._counts.values()) + len(self._counts) + 1
        self._background = background

    def log_likelihoods(self, question: str, passages: Sequence[str], answers: Sequence[str]) -> NDArray[np.float32]:
        """See `Reader`; the question is not looked at."""
        wanted = [tokens for tokens in map(answer_tokens, answers) if tokens]
        if not wanted:
            raise InvalidInputError("answers: none has a token; leave such questions out")
        found = []
        for passage in passages:
            tokens = answer_tokens(passage)
            counts, total = Counter(tokens), max(1, len(tokens))
            found.append(max(sum(self._log(t, counts, total) for t in answer) / len(answer) for answer in wanted))
        return np.array(found, dtype=np.float32)

    def _log(self, token: str, counts: Counter[str], total: int) -> float:
        background = self._background * (self._counts[token] + 1) / self._total
        return math.log((1 - self._background) * counts[token] / total + background)


class CausalReader:
    """A causal language model of transformers: the mean log-likelihood of the answer's tokens after a prompt.

    Args:
        model: the model, in evaluation mode; called with `input_ids` and `attention_mask`, it gives `logits`.
        tokenizer: its tokenizer: text to {"input_ids": [...]}.
        prompt: a template with {passage} and {question}.
        max_tokens: of prompt and answer together; passages are cut to fit.
        batch: passages read at once.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        prompt: str = "{passage}\n\nQuestion: {question}\nAnswer:",
        max_tokens: int = 512,
        batch: int = 8,
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._prompt, self._max_tokens, self._batch = prompt, max_tokens, batch

    @torch.no_grad()
    def log_likelihoods(self, question: str, passages: Sequence[str], answers: Sequence[str]) -> NDArray[np.float32]:
        """See `Reader`."""
        best = np.full(len(passages), -np.inf, dtype=np.float32)
        for answer in answers:
            target = self._ids(" " + answer.strip())
            sequences = [self._sequence(question, passage, target) for passage in passages]
            for start in range(0, len(sequences), self._batch):
                part = self._scores(sequences[start : start + self._batch], len(target))
                best[start : start + self._batch] = np.maximum(best[start : start + self._batch], part)
        return best

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _sequence(self, question: str, passage: str, target: list[int]) -> list[int]:
        before, after = self._prompt.format(passage="\0", question=question).split("\0")
        head, tail = self._ids(before), self._ids(after)
        room = self._max_tokens - len(head) - len(tail) - len(target)
        if room < 1:
            raise InvalidInputError(f"max_tokens={self._max_tokens} leaves no room for the passage; raise it")
        return [*head, *self._ids(passage)[:room], *tail, *target]

    def _scores(self, sequences: Sequence[list[int]], n_target: int) -> NDArray[np.float32]:
        longest = max(map(len, sequences))
        ids = torch.zeros((len(sequences), longest), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, sequence in enumerate(sequences):  # padding on the right changes nothing before it
            ids[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
        logits = self._model(input_ids=ids, attention_mask=mask).logits.float()
        scores = []
        for row, sequence in enumerate(sequences):
            places = torch.arange(len(sequence) - n_target, len(sequence))
            logs = torch.log_softmax(logits[row, places - 1], dim=-1)
            scores.append(float(logs.gather(1, ids[row, places][:, None]).mean()))
        return np.array(scores, dtype=np.float32)
