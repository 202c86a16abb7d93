"""Time and memory as a store grows from 1,000 to 2,000,000 passages, and what that says of 21 million."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import N_QUERIES, SETS, Corpus, passages, prepare, read_texts, write_texts
from benchmarks.machine import memory_bytes
from benchmarks.options import make_parser
from benchmarks.results import FOLDER, Cell, Result, Table
from benchmarks.searchers.base import PeerAbsentError, peer
from benchmarks.timing import clocked, median

_SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
_SMALL = (200, 400, 800)
_QUERIES_OF = 10_000
_QUERIES_OF_SMALL = 2_000
_ADDED_AT_ONCE = 50_000
_WIKIPEDIA = 21_000_000
PLOT = FOLDER / "growth.svg"
_MEASURES = {
    "cpu": ("CPU s to build", 1.0),
    "files": ("files, MB", 1e-6),
    "segments": ("of these the index, MB", 1e-6),
    "anonymous": ("own memory while searching, MB", 1e-6),
    "flat": ("flat query, CPU ms", 1.0),
    "default": ("default query, CPU ms", 1.0),
}


def main() -> None:
    """Grow one store in a process of its own, draw it, and write the result."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--passages", type=int, nargs="+", help=f"sizes, ascending ({' '.join(map(str, _SIZES))})")
    parser.add_argument("--child", nargs=3, metavar=("CORPUS", "STORE", "TEXTS"), help="used by the script itself")
    arguments = parser.parse_args()
    sizes = tuple(arguments.passages or (_SMALL if arguments.small else _SIZES))
    if arguments.child:
        place, store, texts = map(Path, arguments.child)
        print(json.dumps(_measure(Corpus(place), store, read_texts(texts), sizes, arguments.rounds)))
        return
    corpus = prepare(arguments.folder, _QUERIES_OF_SMALL if arguments.small else _QUERIES_OF, small=arguments.small)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        texts = Path(folder) / "texts.txt"
        write_texts(texts, passages(sizes[-1], small=arguments.small))
        child = ["-m", "benchmarks.growth", "--passages", *map(str, sizes), "--rounds", str(arguments.rounds)]
        child += ["--child", str(corpus.folder), str(Path(folder) / "store"), str(texts)]
        points = run_child(child, ONE_CORE)
        drawing = Path(folder) / PLOT.name
        draw(points, drawing)
        if not arguments.small:
            FOLDER.mkdir(exist_ok=True)
            shutil.copyfile(drawing, PLOT)
    command = "python -m benchmarks.growth"
    if sizes != _SIZES:
        command += f" --passages {' '.join(map(str, sizes))}"
    result = _result(points, command)
    result.show() if arguments.small else result.write()


def _result(points: list[dict[str, float]], command: str) -> Result:
    last, before = points[-1], points[-2]
    result = Result(
        "growth",
        f"Growth to {int(last['n']):,} passages",
        [
            "One process adds passages (as in `one_query`) to one store in a folder, at most 50,000 a call, one "
            "thread, and is measured on the way, background merges ended. CPU seconds are of all threads, merges "
            "included; texts come from a file.",
            f"Queries: {N_QUERIES} flat and {N_QUERIES} default vectors (see `one_query`) through "
            "`SiDR.search_vectors`; each one's median over rounds, then the median of them. Own memory is resident "
            "memory that is not of mapped files, model and tokenizer cache included.",
            f"Extrapolation: a line through {int(before['n']):,} and {int(last['n']):,} passages, y = a + b n.",
        ],
        [],
        ["numpy", "numba", "tokenizers", "matplotlib"],
        command,
        plots=[PLOT.name],
        raw={"points": points},
    )
    columns = ("passages", *(label for label, _ in _MEASURES.values()), "segments")
    rows: list[list[Cell]] = [
        [f"{int(p['n']):,}", *(p[key] * scale for key, (_, scale) in _MEASURES.items()), int(p["n_segments"])]
        for p in points
    ]
    result.tables.append(Table("Measured", columns, rows))
    lines: list[list[Cell]] = []
    for key, (label, scale) in _MEASURES.items():
        b = (last[key] - before[key]) * scale / (last["n"] - before["n"])
        a = last[key] * scale - b * last["n"]
        value = a + b * _WIKIPEDIA
        lines.append([label, f"{a:.4g} + {b * 1e6:.4g} x {_WIKIPEDIA / 1e6:.0f} (n in millions)", value])
    result.tables.append(
        Table(f"Extrapolated to {_WIKIPEDIA:,} passages, one core", ("what", "a + b n", "value"), lines)
    )
    return result


def draw(points: list[dict[str, float]], path: Path) -> None:
    """Four panels over the number of passages, both axes logarithmic, as one SVG file.

    Raises:
        SystemExit: if matplotlib is absent.
    """
    try:
        matplotlib = peer("matplotlib", "matplotlib")
    except PeerAbsentError as e:
        raise SystemExit(f"no plot: {e}") from e
    matplotlib.use("svg")
    # Text stays text, and equal figures give equal files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth"})
    pyplot = peer("matplotlib.pyplot", "matplotlib")
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    n = [p["n"] for p in points]
    panels = (
        ("time to build", "CPU seconds", {"cpu": "SiDR.add, all calls"}, 1.0),
        ("on disk", "MB", {"files": "all files", "segments": "index files"}, 1e-6),
        ("memory", "MB", {"anonymous": "own memory while searching", "peak": "highest while building"}, 1e-6),
        ("one query", "CPU milliseconds", {"flat": "768 dimensions, flat", "default": "the default's own"}, 1.0),
    )
    for axis, (title, unit, lines, scale) in zip(axes.flat, panels, strict=True):
        for key, label in lines.items():
            axis.plot(n, [p[key] * scale for p in points], marker="o", markersize=3, label=label)
        axis.set(title=title, xlabel="passages", ylabel=unit, xscale="log", yscale="log")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


# In the child


def _measure(
    corpus: Corpus, store: Path, texts: Iterator[str], sizes: tuple[int, ...], rounds: int
) -> list[dict[str, float]]:
    from sidr_rag import SiDR
    from sidr_rag.search import warm_up
    from sidr_rag.types import SparseVectors

    together = {name: corpus.vectors(name) for name in SETS}
    queries = {
        name: [SparseVectors.from_rows([row], vectors.dim) for row in vectors] for name, vectors in together.items()
    }
    points: list[dict[str, float]] = []
    n, cpu, wall = 0, 0.0, 0.0
    with SiDR.open(store, create=True, num_threads=1) as sidr:
        warm_up(wait=True)
        for size in sizes:
            while block := list(itertools.islice(texts, min(_ADDED_AT_ONCE, size - n))):
                _, seconds = clocked(partial(_added, sidr, block))
                n, cpu, wall = n + len(block), cpu + seconds.cpu, wall + seconds.wall
            _, peak = memory_bytes()
            point: dict[str, float] = {"n": n, "cpu": cpu, "wall": wall, "peak": peak}
            for name, vectors in queries.items():
                point[name] = _query_ms(sidr, vectors, rounds)
            point |= {"anonymous": _anonymous_bytes(), "n_segments": len(sidr._store.current().views)}
            point["files"] = sum(p.stat().st_size for p in _files(store))
            point["segments"] = sum(p.stat().st_size for p in _files(store / "segments"))
            points.append(point)
    return points


def _added(sidr: Any, block: list[str]) -> None:
    sidr.add(block)
    sidr._store.wait()


def _query_ms(sidr: Any, vectors: list[Any], rounds: int) -> float:
    for vector in vectors[:3]:
        sidr.search_vectors(vector)
    medians = []
    for vector in vectors:
        times = []
        for _ in range(rounds):
            start = time.process_time_ns()
            sidr.search_vectors(vector)
            times.append((time.process_time_ns() - start) / 1e6)
        medians.append(median(times))
    return median(medians)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this benchmark reads /proc/self/status")


if __name__ == "__main__":
    main()
