"""Accuracy of a dense bi-encoder on real files: `python -m benchmarks.paper.dense_eval FOLDER --model MODEL`.

FOLDER is DPR's (psgs_w100.tsv and *-SPLIT.qa.csv) or BEIR's. All passages are embedded (vectors are kept, in half
precision, so that a run that was stopped goes on), or with `--rerank M` the best M of BM25 or of a SiDR model's beta.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.options import default_folder
from sidr_rag.encoder import load_encoder
from sidr_rag.eval import Bm25Search, Dataset, EngineSearch, evaluate, load_dataset, markdown
from sidr_rag.eval.searches import Search
from sidr_rag.rerank import BiEncoder
from sidr_rag.types import Passage

_BLOCK = 4096
_DEPTH = 100
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


class DenseModel:
    """Two functions from texts to vectors, also as a second stage.

    Args:
        queries: f32[n, width] of queries.
        passages: f32[n, width] of passages.
    """

    def __init__(self, queries: Embed, passages: Embed) -> None:
        self.queries, self.passages = queries, passages
        self._kept: dict[str, NDArray[np.float32]] = {}

    @classmethod
    def trained(cls, model: str) -> DenseModel:
        """A model of this library's trainer, by its dense head."""
        encoder = load_encoder(model, dtype="auto")
        return cls(
            lambda texts: encoder.encode_dense(texts, "query"), lambda texts: encoder.encode_dense(texts, "passage")
        )

    @classmethod
    def bi_encoder(cls, model: str) -> DenseModel:
        """Any bi-encoder that `BiEncoder` reads, by folder or hub name."""
        encoder = BiEncoder(model)
        return cls(encoder.encode_queries, encoder.encode_passages)

    def rerank(self, query: str, passages: Sequence[Passage], beta_scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Inner products of the candidates, f64[n]; a passage is embedded once."""
        contents = [p.content for p in passages]
        new = [c for c in dict.fromkeys(contents) if c not in self._kept]
        self._kept |= dict(zip(new, self.passages(new), strict=True))
        vectors = np.stack([self._kept[c] for c in contents]).astype(np.float64)
        scores: NDArray[np.float64] = vectors @ self.queries([query])[0].astype(np.float64)
        return scores


def dense_run(
    data: Dataset, model: DenseModel, folder: Path, depth: int = _DEPTH
) -> dict[str, list[tuple[str, float]]]:
    """The best passages of every query over the whole corpus, block by block.

    Args:
        data: what is searched.
        model: embeds both sides.
        folder: keeps one file of vectors for each block.
        depth: passages of a query.
    """
    folder.mkdir(parents=True, exist_ok=True)
    queries = model.queries(list(data.queries.values()))
    best = np.full((len(queries), depth), -np.inf, np.float32)
    ids = np.full((len(queries), depth), "", dtype=object)
    for number, block in enumerate(_blocks(data.passages())):
        vectors = _vectors(folder / f"{number:06}.npy", model, block)
        scores = np.concatenate([best, queries @ vectors.T.astype(np.float32)], axis=1)
        names = np.array([p.id for p in block], dtype=object)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        every = np.concatenate([ids, np.broadcast_to(names, (len(queries), len(names)))], axis=1)
        best, ids = np.take_along_axis(scores, order, axis=1), np.take_along_axis(every, order, axis=1)
    return {
        query: [(str(i), float(s)) for i, s in zip(row, values, strict=True) if np.isfinite(s)]
        for query, row, values in zip(data.queries, ids, best, strict=True)
    }


def _vectors(path: Path, model: DenseModel, block: Sequence[Passage]) -> NDArray[np.float16]:
    if not path.exists():
        unfinished = path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            np.save(file, model.passages([p.content for p in block]).astype(np.float16))
        unfinished.rename(path)
    vectors: NDArray[np.float16] = np.load(path)
    if len(vectors) != len(block):
        raise SystemExit(f"{path} holds {len(vectors)} vectors for {len(block)} passages; give another --store")
    return vectors


def _blocks(passages: Iterator[Passage]) -> Iterator[list[Passage]]:
    while block := list(islice(passages, _BLOCK)):
        yield block


def main() -> None:
    """Measure one model on one data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--model", help="folder that `sidr-rag train` wrote")
    given.add_argument("--bi-encoder", help="folder or hub name of another bi-encoder")
    parser.add_argument("--split", default="test")
    parser.add_argument("--questions", type=Path, help="DPR's *.qa.csv, if not found")
    parser.add_argument("--rerank", type=int, metavar="M", help="only the best M of the first stage")
    parser.add_argument("--first", metavar="MODEL", help="a SiDR model whose beta search is the first stage, not BM25")
    parser.add_argument("--store", type=Path, default=default_folder() / "paper" / "dense", help="(%(default)s)")
    arguments = parser.parse_args()
    data = load_dataset(arguments.data, arguments.split, arguments.questions)
    chosen = DenseModel.trained(arguments.model) if arguments.model else DenseModel.bi_encoder(arguments.bi_encoder)
    place = arguments.store / f"{data.name}-{Path(arguments.model or arguments.bi_encoder).name}"
    searches: dict[str, Search] = {"BM25": Bm25Search()}
    if arguments.rerank and arguments.first:
        searches = {"late": EngineSearch("binary", rerank=arguments.rerank, reranker=chosen)}
    elif arguments.rerank:
        searches = {"late": Bm25Search(rerank=arguments.rerank, reranker=chosen)}
    runs = None if arguments.rerank else {"dense": dense_run(data, chosen, place)}
    print(markdown([evaluate(data, searches, runs=runs, model=arguments.first or "default")]))


if __name__ == "__main__":
    main()
