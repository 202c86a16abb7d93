"""From 10,000 passages to the first answer: this library beside a dense pipeline, models loaded before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.children import ONE_CORE, run_child
from benchmarks.corpora import Corpus, K, prepare
from benchmarks.dense import MODEL, MiniLm, best_rows
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.timing import clocked, median

_PASSAGES = 10_000
_SMALL = 40
_SIDR, _DENSE = "sidr", "dense"


def main() -> None:
    """Measure both in turn, each in fresh processes, and write the result."""
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--passages", type=int, help=f"({_PASSAGES})")
    parser.add_argument("--dense-rounds", type=int, default=1, help="it takes minutes each (%(default)s)")
    parser.add_argument("--child", nargs=2, metavar=("WAY", "CORPUS"), help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.child:
        way, folder = arguments.child
        print(json.dumps((_sidr if way == _SIDR else _dense)(Corpus(Path(folder)))))
        return
    if not MODEL.is_dir():
        raise SystemExit("no ../shared/models/all-MiniLM-L6-v2 beside the checkout: the dense pipeline needs it")
    n = arguments.passages or (_SMALL if arguments.small else _PASSAGES)
    corpus = prepare(arguments.folder, n, small=arguments.small)
    runs: dict[str, list[dict[str, Any]]] = {_SIDR: [], _DENSE: []}
    for i in range(max(arguments.rounds, arguments.dense_rounds)):
        for way, rounds in ((_SIDR, arguments.rounds), (_DENSE, arguments.dense_rounds)):
            if i < rounds:
                child = ["-m", "benchmarks.first_answer", "--child", way, str(corpus.folder)]
                runs[way].append(run_child(child, ONE_CORE))
    command = "python -m benchmarks.first_answer" + ("" if n == _PASSAGES else f" --passages {n}")
    result = _result(runs, n, command)
    result.show() if arguments.small else result.write()


def _result(runs: dict[str, list[dict[str, Any]]], n: int, command: str) -> Result:
    result = Result(
        "first_answer",
        f"From {n:,} passages to the first answer",
        [
            "Passages of about 100 words, one question; fresh processes, one thread. Imports, models and compiled code "
            "are loaded before the clock starts, on both sides: each side has answered over two other texts.",
            f"sidr: `SiDR.add` in memory and `search` (the question encoded); median of {len(runs[_SIDR])} "
            f"rounds. Dense: all-MiniLM-L6-v2 in torch, {runs[_DENSE][0]['dtype']} (the faster of float32 and bfloat16 "
            "in a trial), batches of 32 sorted by length, 256 tokens at most, then NumPy's matrix product with the "
            f"question's vector; median of {len(runs[_DENSE])} rounds.",
        ],
        ["all-MiniLM-L6-v2 through transformers and torch, exact search in NumPy"],
        ["numpy", "tokenizers", "torch", "transformers"],
        command,
        raw={"runs": runs},
    )
    rows: list[list[Cell]] = []
    for label, way in (("sidr", _SIDR), ("dense pipeline", _DENSE)):
        parts = [median([run[key] for run in runs[way]]) for key in ("index_cpu", "answer_cpu", "cpu", "wall")]
        rows.append([label, *parts, n / parts[0]])
    columns = ("way", "indexing, CPU s", "question and search, CPU s", "together, CPU s", "passed s")
    result.tables.append(Table("Seconds", (*columns, "passages indexed per CPU s"), rows))
    ratio = median([run["cpu"] for run in runs[_DENSE]]) / median([run["cpu"] for run in runs[_SIDR]])
    limit = "at small sizes encoding the question is most of ours; a cold tokenizer cache is most of the rest"
    what = "CPU time of the dense pipeline to the first answer, in ours"
    result.musts = [Must(what, ratio, 100.0, at_least=True, aim=200.0, limit=limit)]
    return result


# In the children


def _sidr(corpus: Corpus) -> dict[str, Any]:
    from sidr_rag import SiDR
    from sidr_rag.search import warm_up

    question = corpus.questions[0]
    texts = list(corpus.texts())
    SiDR.from_texts(["one text", "another text"]).search("which text?")
    warm_up(wait=True)
    # Loads this encoder's weights: its tokenizer has seen nothing but a question's words.
    made = SiDR.from_texts(["one text"], num_threads=1)
    made.search("which text?")
    _, index = clocked(lambda: made.add(texts))
    found, answer = clocked(lambda: made.search(question, k=K))
    if not found:
        raise SystemExit("the question found nothing: there is no first answer to time")
    return _figures(index, answer)


def _dense(corpus: Corpus) -> dict[str, Any]:
    question = corpus.questions[0]
    texts = list(corpus.texts())
    model = MiniLm()
    model.choose_dtype(texts)
    vectors, index = clocked(lambda: model.embed(texts))
    _, answer = clocked(lambda: best_rows(vectors, model.embed([question])[0], min(K, len(texts))))
    return {**_figures(index, answer), "dtype": model.dtype}


def _figures(index: Any, answer: Any) -> dict[str, Any]:
    return {
        "index_cpu": index.cpu,
        "answer_cpu": answer.cpu,
        "cpu": index.cpu + answer.cpu,
        "wall": index.wall + answer.wall,
    }


if __name__ == "__main__":
    main()
