"""Bytes per passage: of our lists, level by level, and of every peer's index over the same bags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpora import Corpus, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_children import ChildFailedError, build_facts, built, measured_build
from benchmarks.searchers import NAMES, searcher
from sidr_rag.index.builder import build_segment
from sidr_rag.index.segment import Segment
from sidr_rag.types import TokenCounts

_PASSAGES = 1_000_000
_SMALL = 2_000
_BOUND_TOKENS = 75  # distinct ones a passage, where the bounds come from
_WITHIN = 5


def main() -> None:
    """Read the indexes that the tables of queries search, building what is missing, and write the result."""
    parser = make_parser(__doc__)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    names = tuple(dict.fromkeys(searcher(name).index for name in NAMES))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    arguments = parser.parse_args()
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    places = built(arguments.only, corpus)
    peers = {name: _bytes(name, corpus, place) for name, place in places.items() if name != "sidr"}
    ours = places.get("sidr", "not run")
    if isinstance(ours, str):
        raise SystemExit(f"no store of {n:,} passages: {ours}")
    command = "python -m benchmarks.passage_bytes" + ("" if n == _PASSAGES else f" --passages {n}")
    result = _result(_ours(ours / "store"), _alike(corpus), peers, n, len(corpus.dims), command)
    result.show() if arguments.small else result.write()


def _bytes(name: str, corpus: Corpus, place: Path | str) -> int | str:
    """Of a peer's index; or why there is none."""
    if isinstance(place, str):
        return place
    try:
        facts = measured_build(name, corpus, place) if searcher(name).in_memory else build_facts(place)
    except ChildFailedError as e:
        return str(e)
    return int(facts["bytes"]) or "not known: Python objects"


def _ours(store: Path) -> dict[str, Any]:
    """Bytes of the lists of all segment files, by level and direction, and of the database."""
    levels: dict[int, dict[str, int]] = {}
    shared = 0
    files = sorted((store / "segments").glob("*.seg"))
    for file in files:
        segment = Segment.open(file)
        for threshold, (forward, inverted) in zip(segment.thresholds, segment.level_bytes(), strict=True):
            sums = levels.setdefault(threshold, {"forward": 0, "inverted": 0})
            sums["forward"] += forward
            sums["inverted"] += inverted
        shared += segment.seqs.nbytes + segment.lengths.nbytes
    return {
        "levels": levels,
        "shared": shared,
        "files": sum(file.stat().st_size for file in files),
        "segments": len(files),
        "database": (store / "passages.db").stat().st_size,
    }


def _alike(corpus: Corpus) -> dict[str, float]:
    """One level of a segment of passages that have as many distinct tokens, on average, as the bounds assume."""
    sizes = np.diff(corpus.indptr)
    found = [np.flatnonzero(sizes == _BOUND_TOKENS)]
    for more in range(1, _WITHIN + 1):  # as many with more as with fewer, so that the mean is the bounds' own
        pair = [np.flatnonzero(sizes == _BOUND_TOKENS + sign * more) for sign in (-1, 1)]
        found += [rows[: min(map(len, pair))] for rows in pair]
    rows = np.sort(np.concatenate(found))
    dims = np.concatenate([corpus.dims[corpus.indptr[row] : corpus.indptr[row + 1]] for row in rows.tolist()])
    indptr = np.concatenate([[0], np.cumsum(sizes[rows])])
    counts = TokenCounts(indptr, dims, np.ones(len(dims), np.uint32), sizes[rows].astype(np.uint32), corpus.dim)
    segment = build_segment(counts, np.arange(1, len(rows) + 1, dtype=np.uint64), (1,))
    [(forward, inverted)] = segment.level_bytes()
    n = len(rows)
    return {"passages": n, "tokens": len(dims) / n, "forward": forward / n, "inverted": inverted / n}


def _result(
    ours: dict[str, Any], alike: dict[str, float], peers: dict[str, int | str], n: int, tokens: int, command: str
) -> Result:
    result = Result(
        "passage_bytes",
        f"Bytes a passage, {n:,} passages",
        [
            "Passages as in `one_query`. Ours: the arrays in the segment files of the saved store "
            f"({ours['segments']} segments), without texts; {tokens / n:.1f} distinct tokens a passage. Forward: every "
            "passage's dimensions and list lengths; inverted: everything else of a level (postings or bitmaps).",
            f"The bounds assume {_BOUND_TOKENS} distinct tokens a passage. The rows at that length are one level of a "
            f"segment of {alike['passages']:,} of these passages, with {_BOUND_TOKENS - _WITHIN} to "
            f"{_BOUND_TOKENS + _WITHIN}, mean {alike['tokens']:.1f}; the others are of all passages, as they are.",
            "Peers: files, or arrays where an index lives in memory; over the same bags (over words where the name "
            "says so), as each builds them by default.",
        ],
        [searcher(name).label for name in peers],
        sorted({package for name in (*peers, "sidr") for package in searcher(name).packages}),
        command,
        raw={"ours": ours, "alike": alike, "peers": peers},
    )
    rows: list[list[Cell]] = [
        [f"count >= {threshold}", sums["inverted"] / n, sums["forward"] / n]
        for threshold, sums in sorted(ours["levels"].items())
    ]
    rows.insert(1, [f"count >= 1, of passages of {alike['tokens']:.1f} tokens", alike["inverted"], alike["forward"]])
    rows.append(["persistent order and lengths", None, ours["shared"] / n])
    result.tables.append(Table("Ours, bytes a passage", ("level", "inverted", "forward"), rows))
    totals: list[list[Cell]] = [
        ["sidr, segment files: three levels, both directions", ours["files"] / n, ""],
        ["sidr, database: texts, ids, metadata", ours["database"] / n, ""],
    ]
    for name, size in peers.items():
        label = searcher(name).label
        totals.append([label, None, size] if isinstance(size, str) else [label, size / n, ""])
    result.tables.append(Table("Index beside index", ("index", "bytes a passage", "remarks"), totals))
    one = ours["levels"][1]
    bounds = {"inverted": 125.0, "forward": 151.0}
    result.musts = [
        Must(f"one level, {kind}, bytes a passage of {alike['tokens']:.1f} distinct tokens", alike[kind], bound)
        for kind, bound in bounds.items()
    ]
    limit = f"the bound was set for {_BOUND_TOKENS} distinct tokens; here it is {{:.3f}} bytes a token"
    result.musts += [
        Must(
            f"one level, {kind}, bytes a passage of {tokens / n:.1f} distinct tokens",
            one[kind] / n,
            bound,
            limit=limit.format(one[kind] / tokens),
        )
        for kind, bound in bounds.items()
    ]
    return result


if __name__ == "__main__":
    main()
