"""A judged set: passages as a stream, queries, and what counts as found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval.beir import beir_passages, beir_queries, beir_splits, split_file
from sidr_rag.eval.dpr import dpr_passages, dpr_questions, find_passages, find_questions
from sidr_rag.eval.lines import existing
from sidr_rag.eval.trec import Qrels, read_beir_qrels
from sidr_rag.inputs import as_count
from sidr_rag.types import Passage


@dataclass(frozen=True)
class Dataset:
    """A corpus with queries and judgements or answers.

    Attributes:
        name: for people.
        split: which part of its queries.
        passages: gives the corpus from its start, as a stream: no more than one passage need be in memory.
        queries: text by query id, in file order.
        qrels: query id -> passage id -> grade; empty where relevance is told by answers alone.
        answers: query id -> answer strings, of the queries that have any.
    """

    name: str
    split: str
    passages: Callable[[], Iterator[Passage]]
    queries: Mapping[str, str]
    qrels: Qrels = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def limited(self, n: int) -> Dataset:
        """The same corpus with at most `n` queries, evenly spaced over all of them, for quick runs.

        Raises:
            InvalidInputError, InvalidTypeError: if `n` is no integer of at least 1.
        """
        as_count("limit_queries", n, least=1)
        every = list(self.queries)
        if n >= len(every):
            return self
        kept = [every[i * len(every) // n] for i in range(n)]
        return replace(
            self,
            queries={i: self.queries[i] for i in kept},
            qrels={i: self.qrels[i] for i in kept if i in self.qrels},
            answers={i: self.answers[i] for i in kept if i in self.answers},
        )


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """A BEIR folder: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, each plain or `.gz`.

    Queries are those with a judgement in the split, in file order. A list `answers` in a query's line is kept as
    its answer strings. The corpus is read anew each time its passages are asked for.

    Raises:
        FileReadError: if a file is missing or a line malformed (names file and line; lines of the corpus when they
            are read), or a judged query is not in the file of queries.
        InvalidInputError: if there is no such split; names those there are.
    """
    folder = Path(folder)
    corpus, questions = (existing(folder, name) for name in ("corpus.jsonl", "queries.jsonl"))
    if corpus is None or questions is None:
        lacking = "corpus.jsonl" if corpus is None else "queries.jsonl"
        raise FileReadError(f"{folder}: has no {lacking} (or {lacking}.gz), so it is no BEIR folder")
    judged = split_file(folder, split)
    if judged is None:
        raise InvalidInputError(f"split={split!r}: {folder} has {beir_splits(folder) or 'no splits'}")
    qrels = read_beir_qrels(judged)
    queries, answers = beir_queries(questions, set(qrels))
    lost = next((i for i in qrels if i not in queries), None)
    if lost is not None:
        raise FileReadError(f"{judged}: judges query {lost!r}, which {questions.name} does not have")
    ordered = {i: qrels[i] for i in queries}
    return Dataset(folder.resolve().name, split, lambda: beir_passages(corpus), queries, ordered, answers)


def load_dpr(passages: str | Path, questions: str | Path) -> Dataset:
    """DPR's files: passages as `psgs_w100.tsv` and questions as `*.qa.csv`, each plain or `.gz`.

    Questions have no ids of their own: they get "0", "1" and so on, by their place. There are no judgements: a
    passage is right when it holds an answer string.

    Raises:
        FileReadError: if a file is missing or a record malformed (names file and line; of the passages when they are
            read).
    """
    corpus, asked = Path(passages), Path(questions)
    if not corpus.is_file():
        raise FileReadError(f"{corpus}: no such file; give DPR's file of passages, such as psgs_w100.tsv")
    queries, answers = dpr_questions(asked)
    name = asked.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".qa")
    return Dataset(name, "all", lambda: dpr_passages(corpus), queries, {}, answers)


def load_dataset(path: str | Path, split: str = "test", questions: str | Path | None = None) -> Dataset:
    """A BEIR folder, a folder with DPR's files, or DPR's file of passages with its questions named beside it.

    Args:
        path: the folder, or the file of passages.
        split: of a BEIR folder, the file below `qrels`; of a DPR folder, `*-SPLIT.qa.csv`.
        questions: a `*.qa.csv`; None looks for it in DPR's folder.

    Raises:
        FileReadError, InvalidInputError: as `load_beir` and `load_dpr`.
    """
    path = Path(path)
    if not path.exists():
        raise FileReadError(f"{path}: no such file or folder")
    if path.is_dir() and existing(path, "corpus.jsonl") is not None:
        if questions is not None:
            raise InvalidInputError(f"questions={str(questions)!r}: {path} is a BEIR folder with its own queries")
        return load_beir(path, split)
    corpus = find_passages(path) if path.is_dir() else path
    if corpus is None:
        raise FileReadError(f"{path}: holds neither corpus.jsonl (BEIR) nor psgs_w100.tsv (DPR), plain or .gz")
    return load_dpr(corpus, find_questions(corpus.parent, split) if questions is None else questions)
