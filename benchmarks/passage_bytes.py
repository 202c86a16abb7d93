"""Bytes per passage: of our lists, level by level, and of every peer's index over the same bags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.corpora import Corpus, prepare
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_children import ChildFailedError, build_facts, built, measured_build
from benchmarks.searchers import NAMES, searcher
from sidr_rag.index.segment import Segment

_PASSAGES = 1_000_000
_SMALL = 2_000
_BOUND_TOKENS = 75


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
    result = _result(_ours(ours / "store"), peers, n, len(corpus.dims), command)
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


def _scaled(bytes_a_token: float) -> str:
    return (
        f"it is {bytes_a_token:.3f} bytes a distinct token, {bytes_a_token * _BOUND_TOKENS:.0f} for passages of "
        f"{_BOUND_TOKENS} distinct tokens, such as the bound was set for"
    )


def _result(ours: dict[str, Any], peers: dict[str, int | str], n: int, tokens: int, command: str) -> Result:
    result = Result(
        "passage_bytes",
        f"Bytes a passage, {n:,} passages",
        [
            "Passages as in `one_query`. Ours: the arrays in the segment files of the saved store "
            f"({ours['segments']} segments), without texts; {tokens / n:.1f} distinct tokens a passage. Forward: every "
            "passage's dimensions and list lengths; inverted: everything else of a level (postings or bitmaps).",
            "Peers: files, or arrays where an index lives in memory; over the same bags (over words where the name "
            "says so), as each builds them by default.",
        ],
        [searcher(name).label for name in peers],
        sorted({package for name in (*peers, "sidr") for package in searcher(name).packages}),
        command,
        raw={"ours": ours, "peers": peers},
    )
    rows: list[list[Cell]] = [
        [f"count >= {threshold}", sums["inverted"] / n, sums["forward"] / n]
        for threshold, sums in sorted(ours["levels"].items())
    ]
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
    result.musts = [
        Must(f"one level, {kind}, bytes a passage", one[kind] / n, bound, limit=_scaled(one[kind] / tokens))
        for kind, bound in (("inverted", 125.0), ("forward", 151.0))
    ]
    return result


if __name__ == "__main__":
    main()
