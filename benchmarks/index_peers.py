"""From texts (or from bags) to a searchable index of 100,000 passages, beside peers: CPU seconds, memory, bytes."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import Corpus, prepare
from benchmarks.machine import forget_peak, memory_bytes
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.search_children import ChildFailedError, measured_build
from benchmarks.searchers import PeerAbsentError, searcher
from benchmarks.timing import clocked, median

_PASSAGES = 100_000
_SMALL = 2_000
_HF_AT_ONCE = 1_000
# Ways that are no searchers, measured here; the others build the index that they search in the tables of queries.
_WAYS = {
    "hf": "Hugging Face tokenizers, encode_batch_fast alone",
    "authors": "the authors': tokenizer loop to a torch CSR matrix",
    "sidr_memory": "sidr: SiDR.add in memory",
}
_BUILDERS = {
    "sidr": "sidr: SiDR.add into a folder, texts and ids stored",
    "tantivy_words": "tantivy over words, texts stored",
    "bm25s": "bm25s, stemmed words",
    "rank_bm25": "rank_bm25, words between white space",
    "torch": "torch CSR matrix (the authors')",
}
_FROM_TEXTS = ("sidr_memory", "sidr", "hf", "authors", "tantivy_words", "bm25s", "rank_bm25")
_FROM_BAGS = ("torch", "scipy", "plain", "splade_index", "tantivy", "seismic", "bmp", "qdrant", "milvus")
_REPEATED = ("sidr_memory", "sidr", "hf", "authors", "tantivy_words")


def main() -> None:
    """Measure every way in turn, the rows that targets speak of several rounds, and write the result."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    names = (*_FROM_TEXTS, *_FROM_BAGS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--child", nargs=2, metavar=("WAY", "CORPUS"), help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_child(*arguments.child)))
        return
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.only}
    failures: dict[str, str] = {}
    for i in range(arguments.rounds):
        for name in arguments.only:
            if name in failures or (i and name not in _REPEATED):
                continue
            try:
                runs[name].append(_measured(name, corpus, arguments.folder))
            except ChildFailedError as e:
                failures[name] = str(e)
    command = "python -m benchmarks.index_peers" + ("" if n == _PASSAGES else f" --passages {n}")
    result = _result(runs, failures, n, arguments.rounds, command)
    result.show() if arguments.small else result.write()


def _measured(name: str, corpus: Corpus, folder: Path) -> dict[str, Any]:
    if name in _WAYS:
        answer = run_child(["-m", "benchmarks.index_peers", "--child", name, str(corpus.folder)], ONE_CORE)
        if "failed" in answer:
            raise ChildFailedError(answer["failed"])
        found: dict[str, Any] = answer
        return found
    with tempfile.TemporaryDirectory(dir=folder) as index:
        return measured_build(name, corpus, Path(index) / "index")


def _label(name: str) -> str:
    return {**_WAYS, **_BUILDERS}.get(name) or searcher(name).label


def _result(
    runs: dict[str, list[dict[str, Any]]], failures: dict[str, str], n: int, rounds: int, command: str
) -> Result:
    names = [name for name in runs if name not in _WAYS]
    result = Result(
        "index_peers",
        f"Indexing {n:,} passages, beside peers",
        [
            "Passages as in `one_query`, read from a file within the measurement. A fresh process for each, one thread "
            "where a way has such a setting; modules and models are loaded before the clock starts, tokenizer caches "
            "are empty. CPU seconds are of all threads; memory is the highest resident size less the size before.",
            f"Rows that targets speak of: medians of {rounds} interleaved rounds; the others ran once.",
            "From bags: the passages' bags of tokens are there already, and only the index is made of them.",
            "Index bytes: files, or arrays where the index lives in memory; ours holds three levels, and its texts "
            "are beside it in SQLite (in the time and memory, not in these bytes).",
            "The authors' builder: batches of 32, 256 tokens at most, its buffer fault mended. Hugging Face gets "
            f"batches of {_HF_AT_ONCE:,}, without special tokens, and makes no index.",
        ],
        [_label(name) for name in runs if not name.startswith("sidr")],
        sorted({"tokenizers", "transformers", *(p for name in names for p in searcher(name).packages)}),
        command,
        raw={"runs": runs, "failures": failures},
    )
    fastest = _cpu(runs, "sidr_memory")
    for title, part in (("From texts", _FROM_TEXTS), ("From bags", _FROM_BAGS)):
        rows: list[list[Cell]] = []
        for name in part:
            if name in failures:
                rows.append([_label(name), None, None, None, None, None, failures[name]])
            elif runs.get(name):
                rows.append([_label(name), *_figures(runs[name], n, fastest), ""])
        columns = ("way", "CPU s", "passages per CPU s", "times ours in memory", "memory, MiB", "index bytes a passage")
        result.tables.append(Table(title, (*columns, "remarks"), rows))
    result.musts = _musts(runs)
    return result


def _figures(done: list[dict[str, Any]], n: int, fastest: float | None) -> list[Cell]:
    cpu = median([run["cpu"] for run in done])
    memory = median([(run["peak"] - run["before"]) / 2**20 for run in done])
    size = done[0].get("bytes") or None
    return [cpu, n / cpu, None if fastest is None else cpu / fastest, memory, None if size is None else size / n]


def _cpu(runs: dict[str, list[dict[str, Any]]], name: str) -> float | None:
    return median([run["cpu"] for run in runs[name]]) if runs.get(name) else None


def _musts(runs: dict[str, list[dict[str, Any]]]) -> list[Must]:
    musts: list[Must] = []
    for what, other, mine, bound, aim in (
        ("encode_batch_fast alone, of ours in memory", "hf", "sidr_memory", 8.0, 12.0),
        ("the authors' builder, of ours in memory", "authors", "sidr_memory", 15.0, None),
        ("tantivy over words, of ours in a folder", "tantivy_words", "sidr", 1.0, None),
    ):
        theirs, ours = _cpu(runs, other), _cpu(runs, mine)
        if theirs is not None and ours is not None:
            limit = f"{_cpu(runs, 'sidr_memory') or 0:.2f} s are tokenization and inversion"
            limit += f", {ours:.2f} s with SQLite and files" if mine == "sidr" else ""
            musts.append(Must(f"CPU time of {what}", theirs / ours, bound, at_least=True, aim=aim, limit=limit))
    for name in ("sidr_memory", "sidr"):
        if runs.get(name):
            memory = median([(run["peak"] - run["before"]) / 2**20 for run in runs[name]])
            limit = "one block of 50,000 passages is counted, sorted and inverted at once"
            musts.append(Must(f"memory above start, MiB: {_label(name)}", memory, 300.0, aim=200.0, limit=limit))
    return musts


# In the child


def _child(name: str, corpus_folder: str) -> dict[str, Any]:
    try:
        call = _prepared(name, Corpus(Path(corpus_folder)))
    except PeerAbsentError as e:
        return {"failed": str(e)}
    forget_peak()
    before, _ = memory_bytes()
    made, seconds = clocked(call)
    _, peak = memory_bytes()
    size = made if isinstance(made, int) else None
    return {"wall": seconds.wall, "cpu": seconds.cpu, "before": before, "peak": peak, "bytes": size}


def _prepared(name: str, corpus: Corpus) -> Callable[[], object]:
    if name == "hf":
        return partial(_hugging_face, corpus)
    if name == "authors":
        from benchmarks.searchers.authors import authors_bags, authors_tokenizer

        tokenizer = authors_tokenizer()
        return lambda: authors_bags(list(corpus.texts()), tokenizer)
    from benchmarks.searchers.sidr import SidrVectors
    from sidr_rag.encoder import load_encoder
    from sidr_rag.engine import SiDR
    from sidr_rag.index.store import Store
    from sidr_rag.options import new_settings, resolve_weighting

    SidrVectors(corpus, Path()).load()
    encoder = load_encoder()  # another one: its tokenizer's cache is empty
    store = Store.in_memory(new_settings("default", encoder), encoder.tokenizer)
    sidr = SiDR(store, encoder, resolve_weighting("default", encoder))

    def add() -> int:
        sidr.add(corpus.texts())
        return int(sidr.info()["index_bytes"])

    return add


def _hugging_face(corpus: Corpus) -> None:
    from tokenizers import Tokenizer

    from sidr_rag.encoder.resolve import DEFAULT_FOLDER

    tokenizer = Tokenizer.from_file(str(DEFAULT_FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = corpus.texts()
    while batch := list(itertools.islice(texts, _HF_AT_ONCE)):
        tokenizer.encode_batch_fast(batch, add_special_tokens=False)


if __name__ == "__main__":
    main()
