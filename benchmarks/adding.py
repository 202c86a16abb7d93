"""A thousand passages into a store of a million, until they are searchable and on disk; with its parts."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import Corpus, passages, prepare, read_texts, write_texts
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_children import built
from benchmarks.timing import clocked, median

_PASSAGES = 1_000_000
_ADDED = 1_000
_SMALL = 2_000
_SMALL_ADDED = 100
_PARTS = (
    "tokenize to counts",
    "build the segment",
    "insert rows into SQLite, beside writing the segment file",
    "wait for the segment file",
    "commit in SQLite (syncs)",
    "the rest: ids, rows, the new state",
)
_BESIDE = (
    "beside: write and sync the segment file",
    "beside: of that, waiting for the disk (fsync)",
    "beside: map the segment file",
)


def main() -> None:
    """Add to a copy of the store that `one_query` searches, and write the result."""
    parser = make_parser(__doc__, rounds=11)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    parser.add_argument("--child", nargs=3, metavar=("CORPUS", "STORE", "FRESH"), help="used by the script itself")
    arguments = parser.parse_args()
    added = _SMALL_ADDED if arguments.small else _ADDED
    if arguments.child:
        folder, store, texts = map(Path, arguments.child)
        print(json.dumps(_measure(Corpus(folder), store, list(read_texts(texts)), arguments.rounds)))
        return
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    index = built(["sidr"], corpus)["sidr"]
    if isinstance(index, str):
        raise SystemExit(f"no store of {n:,} passages: {index}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        copy = Path(place) / "store"
        shutil.copytree(index / "store", copy)
        fresh = itertools.islice(passages(n + arguments.rounds * added, small=arguments.small), n, None)
        write_texts(Path(place) / "fresh.txt", fresh)
        child = ["-m", "benchmarks.adding", "--rounds", str(arguments.rounds)]
        child += ["--child", str(corpus.folder), str(copy), str(Path(place) / "fresh.txt")]
        runs = run_child(child, ONE_CORE)
    command = "python -m benchmarks.adding" + ("" if n == _PASSAGES else f" --passages {n}")
    result = _result(runs, n, added, command)
    result.show() if arguments.small else result.write()


def _result(runs: list[dict[str, Any]], n: int, added: int, command: str) -> Result:
    result = Result(
        "adding",
        f"{added:,} passages into {n:,}",
        [
            f"A copy of the store of {n:,} passages (see `one_query`), open in one process, one thread. Each round "
            f"adds {added:,} passages of about 100 words that were in no store before, by one call of `SiDR.add`, and "
            "searches once; background merges end before the next round. The first round has an empty tokenizer cache "
            f"and is shown apart; the others are medians of {len(runs) - 1} rounds, in milliseconds passed.",
            "The segment file is written, synced and mapped in a thread of its own, beside the rows' way into SQLite; "
            "the commit waits for both. The search is the default one, levelled, of a question that is encoded "
            "already: the one after makes every passage's length factor anew, for the average length has changed.",
            "When `add` returns, its passages are on disk and every later search sees them: the search after it is "
            "checked to find the last of them.",
        ],
        [],
        ["numpy", "tokenizers"],
        command,
        raw={"runs": runs},
    )
    first, later = runs[0], runs[1:]

    def middle(key: str) -> float:
        return median([run[key] for run in later])

    rows: list[list[Cell]] = [
        [part, first["parts"][part], median([run["parts"][part] for run in later])] for part in (*_PARTS, *_BESIDE)
    ]
    rows += [
        ["SiDR.add, all of it", first["add"], middle("add")],
        ["... CPU of all threads", first["cpu"], middle("cpu")],
        ["the search after it", first["search_after"], middle("search_after")],
        ["a search before it", first["search_before"], middle("search_before")],
    ]
    result.tables.append(Table("Milliseconds", ("part", "first round", "median of the others"), rows))
    part = max(_PARTS, key=lambda name: median([run["parts"][name] for run in later]))
    total = median([run["add"] + max(0.0, run["search_after"] - run["search_before"]) for run in later])
    limit = f"the largest part is: {part}"
    what = f"{added:,} passages until searchable and durable, ms (with what they slow the next search by)"
    result.musts = [Must(what, total, 60.0, aim=40.0, limit=limit)]
    return result


# In the child


def _measure(corpus: Corpus, store: Path, fresh: list[str], rounds: int) -> list[dict[str, Any]]:
    from sidr_rag import SiDR
    from sidr_rag.rerank.queries import Queries
    from sidr_rag.search import warm_up

    added = len(fresh) // rounds
    blocks = [fresh[r * added : (r + 1) * added] for r in range(rounds)]
    runs = []
    with SiDR.open(store, num_threads=1) as sidr:
        warm_up(wait=True)
        first, asked = sidr._pipeline.first, Queries(corpus.questions[:1], sidr.encoder, corpus.dim, "theta", None)

        def search() -> object:
            return first.hits("sidr", asked, 10, None, sidr._store.current())

        for _ in range(5):
            search()
        for r, texts in enumerate(blocks):
            ids = [f"fresh-{r}-{i}" for i in range(len(texts))]
            _, before = clocked(search)
            with _parts_timed(sidr.encoder.tokenizer) as parts:
                _, spent = clocked(partial(sidr.add, texts, ids=ids))
            _, after = clocked(search)
            found = sidr.search_vectors(sidr.bags(texts[-1:]), k=added)
            if ids[-1] not in found.ids[0]:
                raise SystemExit("the search after adding does not find the last passage")
            sidr._store.wait()
            parts[_PARTS[-1]] = spent.wall * 1e3 - sum(parts[part] for part in _PARTS[:-1])
            runs.append(
                {
                    "parts": parts,
                    "add": spent.wall * 1e3,
                    "cpu": spent.cpu * 1e3,
                    "search_before": before.wall * 1e3,
                    "search_after": after.wall * 1e3,
                }
            )
    return runs


@contextmanager
def _parts_timed(tokenizer: Any) -> Iterator[dict[str, float]]:
    """Milliseconds passed in each part of `add` while the context lasts."""
    from sidr_rag.index import writer
    from sidr_rag.index.beside import Beside
    from sidr_rag.index.segment import Segment
    from sidr_rag.index.transaction import SqliteTransaction

    spent = dict.fromkeys((*_PARTS, *_BESIDE), 0.0)

    def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                spent[part] += (time.perf_counter() - start) * 1e3

        return wrapped

    places = (
        (_PARTS[0], tokenizer, "counts"),
        (_PARTS[1], writer, "build_segment"),
        (_PARTS[2], SqliteTransaction, "insert"),
        (_PARTS[3], Beside, "__exit__"),
        (_PARTS[4], SqliteTransaction, "commit"),
        (_BESIDE[0], Segment, "save"),
        (_BESIDE[1], os, "fsync"),
        (_BESIDE[2], Segment, "open"),
    )
    patches = [patch.object(owner, name, timed(part, getattr(owner, name))) for part, owner, name in places]
    for each in patches:
        each.start()
    try:
        yield spent
    finally:
        for each in patches:
            each.stop()


if __name__ == "__main__":
    main()
