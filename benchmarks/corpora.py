"""Passages, their bags, query vectors and the exact best scores, made once and kept in a folder.

Up to 200,000 passages are real pieces of 100 words. Beyond that a passage is the first half of one real piece and the
second half of another: real words in real order, and no two bags alike. (Pieces with their words shuffled have the bag
of the piece they were made of, so that every best score would be shared by dozens of passages.)
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import cut_passages, few_passages, few_questions, questions
from sidr_rag.types import SparseVectors

K = 10
N_QUERIES = 32
SETS = ("flat", "default")
FLAT_DIMS = 768

_TEXTS = "texts.txt"
_REAL = 200_000
_TOKENIZED_AT_ONCE = 50_000
_SCANNED_AT_ONCE = 50_000
_VERSION = 2
# A sum of 32-bit floats may differ from the exact one by this much of it, and so order near-equal passages otherwise.
_TOLERANCE = 1e-5


class Corpus:
    """What a benchmark reads: in files, mapped where they are large.

    Attributes:
        folder: where the files are.
        indptr: i64[n + 1]; passage i holds the dimensions `dims[indptr[i]:indptr[i + 1]]`.
        dims: u16[nnz], ascending within a passage.
        dim: dimensions of the vocabulary space.
    """

    def __init__(self, folder: Path) -> None:
        """Open what `prepare` made."""
        self.folder = folder
        self.indptr: NDArray[np.int64] = np.load(folder / "indptr.npy")
        self.dims: NDArray[np.uint16] = np.load(folder / "dims.npy", mmap_mode="r")
        facts = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        self.dim: int = facts["dim"]
        self._facts = facts

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def texts(self) -> Iterator[str]:
        """Every passage's text."""
        return read_texts(self.folder / _TEXTS)

    @cached_property
    def questions(self) -> list[str]:
        """What was asked, in words."""
        asked: list[str] = self._facts["questions"]
        return asked

    def vectors(self, name: str) -> SparseVectors:
        """The query vectors of a set."""
        with np.load(self.folder / f"{name}.npz") as arrays:
            return SparseVectors(arrays["indptr"], arrays["dims"], arrays["weights"], self.dim)

    def best(self, name: str) -> NDArray[np.float64]:
        """The exact best scores of a set's queries, f64[queries, K], best first."""
        with np.load(self.folder / f"{name}.npz") as arrays:
            scores: NDArray[np.float64] = arrays["best"]
        return scores

    def recall(self, name: str, i: int, rows: Sequence[int]) -> float:
        """The share of the best K that was found for query i.

        A found passage counts by its own exact score, so that of passages with equal scores any will do.
        """
        dims, weights = self.vectors(name).row(i)
        dense = np.zeros(self.dim)
        dense[dims] = weights
        least = float(self.best(name)[i, -1]) * (1 - _TOLERANCE)
        found = set(rows[:K])
        scores = [float(dense[self.dims[self.indptr[r] : self.indptr[r + 1]]].sum()) for r in found]
        return sum(score >= least for score in scores) / K

    def postings_of(self, name: str) -> float:
        """How many postings a query of the set meets, on average, per passage."""
        df = np.asarray(self._facts["df"], dtype=np.int64)
        return float(np.mean([df[dims].sum() for dims, _ in self.vectors(name)])) / len(self)


def prepare(folder: Path, n: int, *, small: bool = False) -> Corpus:
    """The corpus of n passages under a folder, made now if it is not there."""
    place = folder / f"passages-{n}{'-small' if small else ''}-v{_VERSION}"
    if not (place / "corpus.json").exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = folder / f"{place.name}-{os.getpid()}.tmp"
        unfinished.mkdir()
        try:
            _make(unfinished, n, small)
            unfinished.rename(place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Corpus(place)


def passages(n: int, *, small: bool = False) -> Iterator[str]:
    """So many texts, as the module describes."""
    real = few_passages(n) if small else cut_passages(min(n, _REAL))
    yield from real
    if n <= len(real):
        return
    halves = [_halves(text.split()) for text in real]
    # Each pass pairs every piece with another at a distance of its own, so no pair comes twice.
    pairs = ((i, (i + distance) % len(halves)) for distance in itertools.count(1) for i in range(len(halves)))
    for i, j in itertools.islice(pairs, n - len(real)):
        yield f"{halves[i][0]} {halves[j][1]}"


def _halves(words: list[str]) -> tuple[str, str]:
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """One text a line, so that a measured process can read them without making them; none may hold a line's end."""
    with path.open("w", encoding="utf-8", newline="\n") as f:
        f.writelines(f"{text}\n" for text in texts)


def read_texts(path: Path) -> Iterator[str]:
    """What `write_texts` wrote."""
    with path.open(encoding="utf-8", newline="\n") as f:
        for line in f:
            yield line[:-1]


def flat_queries(like: SparseVectors, df: NDArray[np.int64], seed: int = 7) -> SparseVectors:
    """Heavy queries: dimensions drawn without repetition in proportion to how many passages hold them.

    Args:
        like: vectors whose weights are given to the drawn dimensions, in random order.
        df: i64[dim]; how many passages hold each dimension.
        seed: of the draw.
    """
    random = np.random.default_rng(seed)
    share = df / df.sum()
    rows = []
    for _, weights in like:
        n = min(len(weights), int(np.count_nonzero(df)))
        dims = random.choice(len(df), n, replace=False, p=share)
        rows.append((dims, random.permutation(weights)[:n]))
    return SparseVectors.from_rows(rows, like.dim)


def _make(folder: Path, n: int, small: bool) -> None:
    from sidr_rag.encoder import load_encoder

    encoder = load_encoder()
    write_texts(folder / _TEXTS, passages(n, small=small))
    texts = read_texts(folder / _TEXTS)
    sizes, dims = [np.zeros(1, np.int64)], []
    while block := list(itertools.islice(texts, _TOKENIZED_AT_ONCE)):
        counts = encoder.tokenizer.counts(block)
        sizes.append(np.diff(counts.indptr))
        dims.append(counts.dims)
    indptr, all_dims = np.cumsum(np.concatenate(sizes)), np.concatenate(dims)
    np.save(folder / "indptr.npy", indptr)
    np.save(folder / "dims.npy", all_dims)
    df = np.bincount(all_dims, minlength=encoder.dim)
    asked = few_questions(N_QUERIES) if small else questions(N_QUERIES)
    # The same weights as the model's own top 768, elu1p's: a few large ones, then a long flat tail.
    wide = SparseVectors.from_rows(
        [_strongest(*row) for row in encoder.encode_queries(asked, max_active_dims=FLAT_DIMS)], encoder.dim
    )
    for name, vectors in (("flat", flat_queries(wide, df)), ("default", encoder.encode_queries(asked))):
        best = _best_scores(vectors, indptr, all_dims)
        np.savez(folder / f"{name}.npz", indptr=vectors.indptr, dims=vectors.dims, weights=vectors.weights, best=best)
    facts = {"dim": encoder.dim, "questions": asked, "df": df.tolist()}
    (folder / "corpus.json").write_text(json.dumps(facts), encoding="utf-8")


def _strongest(dims: NDArray[np.int32], weights: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    kept = np.argsort(-weights, kind="stable")[:FLAT_DIMS]
    return dims[kept], weights[kept]


def _best_scores(vectors: SparseVectors, indptr: NDArray[np.int64], dims: NDArray[np.uint16]) -> NDArray[np.float64]:
    """By a scan of every passage's list in 64-bit floats: slow, and not the way of anything that is measured."""
    best = np.zeros((len(vectors), K))
    dense = np.zeros(vectors.dim)
    for a in range(0, len(indptr) - 1, _SCANNED_AT_ONCE):
        ends = indptr[a : a + _SCANNED_AT_ONCE + 1]
        held = np.flatnonzero(np.diff(ends))  # reduceat cannot add up nothing
        lists, starts = dims[ends[0] : ends[-1]], (ends[:-1] - ends[0])[held]
        for i, (query_dims, weights) in enumerate(vectors):
            dense[query_dims] = weights
            scores = np.add.reduceat(dense[lists], starts) if len(held) else np.zeros(0)
            best[i] = np.sort(np.concatenate([best[i], scores]))[: -K - 1 : -1]
            dense[query_dims] = 0
    return best
