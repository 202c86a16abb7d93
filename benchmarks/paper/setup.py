"""What the tables share: judged sets, the models that stand in for the paper's, and what is slow to make, kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.dense import MODEL
from benchmarks.paper.figures import Figures, Parts
from benchmarks.paper.remembering import RememberingEncoder
from sidr_rag.encoder import Encoder, load_encoder
from sidr_rag.errors import InvalidInputError
from sidr_rag.eval import Dataset, Report, evaluate, load_beir
from sidr_rag.eval.searches import Search
from sidr_rag.rerank import BiEncoder
from sidr_rag.types import Passage

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
SUCCESS = ("Success(answers)@1", "Success(answers)@5", "Success(answers)@20")
SPLITS = {"squad-dev": "test-xquad"}  # 1,190 of its 10,570 questions, of all its articles
DENSE_NAME = "all-MiniLM-L6-v2"
_SMALL_QUERIES, _SMALL_PASSAGES = 3, 12
_DEPTH = 100


@dataclass(frozen=True)
class Setup:
    """How large, and where things are kept.

    Attributes:
        folder: keeps stores, embeddings and trained models, so that a table that was cut off goes on.
        small: tiny sizes, to try every line; its figures mean nothing.
        only: the judged sets to measure; None for all.
    """

    folder: Path
    small: bool = False
    only: Sequence[str] | None = None

    @cached_property
    def encoder(self) -> Encoder:
        """The bundled model; in bfloat16 where the processor multiplies it, as passages are many."""
        return load_encoder("default", dtype="auto")

    @cached_property
    def _remembering(self) -> Encoder:
        return cast(Encoder, RememberingEncoder(self.encoder))

    @cached_property
    def minilm(self) -> BiEncoder:
        """The dense bi-encoder, in bfloat16 where the processor multiplies it.

        Raises:
            InvalidInputError: if it is not beside the checkout.
        """
        if not MODEL.is_dir():
            raise InvalidInputError(f"no shared/models/{MODEL.name} beside the checkout; the dense rows need it")
        return BiEncoder(MODEL, dtype="auto")

    def dataset(self, name: str, split: str | None = None, limit: int | None = None) -> Dataset:
        """A judged set of the shared data; the split is the one that the tables use."""
        chosen = split or SPLITS.get(name, "test")
        found = load_beir(SHARED / "data" / "eval" / name, chosen)
        if self.small:  # one corpus for all tables, whatever their limits
            return shrunk(found, _SMALL_QUERIES, _SMALL_PASSAGES)
        return found if limit is None else found.limited(limit)

    def measured(
        self, table: str, sets: Iterable[str], make: Callable[[str], Report | Figures]
    ) -> tuple[dict[str, Figures], bool]:
        """The figures of a table's sets, and whether these are all.

        Sets that were measured before the table was cut off are taken from their files; `only` leaves sets out, and at
        small sizes the first stands for all.

        Args:
            table: its name.
            sets: their names.
            make: measures a set.
        """
        names = list(sets)
        parts = Parts(None if self.small else self.folder / "paper" / "parts", table, self.encoder.fingerprint)
        chosen = [n for n in names if self.only is None or n in self.only or n in parts]
        chosen = chosen[:1] if self.small else chosen
        found = {name: parts.made(name, partial(make, name)) for name in chosen}
        whole = len(found) == len(names)
        if whole:
            parts.clear()
        return found, whole

    def report(
        self,
        dataset: Dataset,
        searches: Mapping[str, Search],
        measures: Sequence[str],
        runs: Mapping[str, Any] | None = None,
        model: Encoder | None = None,
        store: str | None = None,
    ) -> Report:
        """The searches' measures and costs; the index and V_theta are kept for the next table.

        Args:
            dataset: what is searched.
            searches: by name; may be empty where there are runs.
            measures: as `evaluate` takes them.
            runs: rankings that were made elsewhere, by name.
            model: None for the bundled one.
            store: the folder's name; None takes the dataset's.
        """
        place = self.folder / "paper" / (store or dataset.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        encoder = self._remembering if model is None else cast(Encoder, RememberingEncoder(model))
        return evaluate(dataset, searches, measures=measures, model=encoder, store=place, runs=runs, on_step=_show)

    def dense(self, dataset: Dataset) -> Dense:
        """The dense bi-encoder over a set; vectors of its passages are kept."""
        passages = list(dataset.passages())
        contents = [p.content for p in passages]
        key = hashlib.sha256("\0".join([MODEL.name, *contents]).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = self.folder / "paper" / f"dense-{key}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _show(f"{dataset.name}: embedding {len(contents):,} passages by {DENSE_NAME}")
            with path.with_suffix(".tmp").open("wb") as file:
                np.save(file, self.minilm.encode_passages(contents))
            path.with_suffix(".tmp").rename(path)
        return Dense([p.id for p in passages], np.load(path), self.minilm, list(dataset.queries.items()))


class Dense:
    """An exact dense search, and the same vectors as a second stage.

    Args:
        ids: of the passages.
        vectors: f32[n, width], of length 1.
        model: embeds the queries, once each.
        queries: id and text.
    """

    def __init__(
        self, ids: Sequence[str], vectors: NDArray[np.float32], model: BiEncoder, queries: Sequence[tuple[str, str]]
    ) -> None:
        self._ids, self._vectors = list(ids), vectors
        self._rows = {passage_id: row for row, passage_id in enumerate(ids)}
        texts = list(dict.fromkeys(text for _, text in queries))
        self._queries = dict(zip(texts, model.encode_queries(texts), strict=True))
        self._asked = list(queries)

    def run(self, depth: int = _DEPTH) -> dict[str, list[tuple[str, float]]]:
        """The best passages of every query, by inner product."""
        found = {}
        for query_id, text in self._asked:
            scores = self._vectors @ self._queries[text]
            best = np.argsort(-scores, kind="stable")[:depth]
            found[query_id] = [(self._ids[row], float(scores[row])) for row in best]
        return found

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Inner products of the candidates, f64[n], as `sidr_rag.protocols.Reranker` wants them."""
        rows = [self._rows[p.id] for p in passages]
        scores: NDArray[np.float64] = (self._vectors[rows] @ self._queries[query]).astype(np.float64)
        return scores


def shrunk(dataset: Dataset, n_queries: int, n_passages: int) -> Dataset:
    """A few queries with their right passages and some others, to try things on."""
    few = dataset.limited(n_queries)
    wanted = {i for judged in few.qrels.values() for i in list(judged)[:2]}
    passages = [p for p in dataset.passages() if p.id in wanted]
    passages += list(islice((p for p in dataset.passages() if p.id not in wanted), max(0, n_passages - len(passages))))
    kept = {p.id for p in passages}
    qrels = {query: {i: g for i, g in judged.items() if i in kept} for query, judged in few.qrels.items()}
    return replace(few, passages=lambda: iter(passages), qrels=qrels)


def _show(step: str) -> None:
    if "queries" not in step:
        print(step, flush=True)
