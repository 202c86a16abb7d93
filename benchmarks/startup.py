"""How long a fresh process needs to import the library, and to answer its first question through LangChain."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.children import ROOT, run_child
from benchmarks.data import few_passages, few_questions, natural_passages, questions
from benchmarks.options import make_parser
from benchmarks.results import Cell, Must, Result, Table
from benchmarks.timing import median

_N_TEXTS = 100
_HEAVY = ("torch", "transformers", "numba", "tokenizers", "langchain_core", "numpy", "sqlite3", "pydantic")
_IMPORTS = {
    "import sidr_rag": "import sidr_rag",
    "from sidr_rag import SiDR": "from sidr_rag import SiDR",
    "from langchain_sidr import SiDRRetriever": "from langchain_sidr import SiDRRetriever",
    "import numpy (for comparison)": "import numpy",
    "from langchain_core.retrievers import BaseRetriever (for comparison)": (
        "from langchain_core.retrievers import BaseRetriever"
    ),
}
_IMPORT = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
heavy = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps({{"seconds": seconds, "modules": len(set(sys.modules) - before), "heavy": heavy}}))
"""
_READ = """
import json, sys, time
from pathlib import Path
given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
"""
_SHOW = """
print(json.dumps({"at": time.monotonic(), "cpu": time.process_time(), "results": len(results),
                  "torch": "torch" in sys.modules, "numba": "numba" in sys.modules}))
"""
_ANSWERS = {
    "LangChain, beta": """
from langchain_sidr import SiDRRetriever
results = SiDRRetriever.from_texts(given["texts"], k=4).invoke(given["question"])
""",
    "LangChain, late (rerank=20, embeds 20 passages)": """
from langchain_sidr import SiDRRetriever
results = SiDRRetriever.from_texts(given["texts"], k=4, rerank=20).invoke(given["question"])
""",
    "the engine alone, beta": """
from sidr_rag import SiDR
results = SiDR.from_texts(given["texts"]).search(given["question"], k=4)
""",
    "compiled kernel serves (large stores load it in the background)": """
from sidr_rag.search.kernels import kernel_for
while kernel_for(1_000_000).name != "numba":
    time.sleep(0.005)
results = [True]
""",
    "compiled kernel complete": """
from sidr_rag.search.kernels import warm_up
results = [warm_up()]
""",
}
_BETA = "LangChain, beta"


def main() -> None:
    """Measure every program in turn, several rounds, and write the result."""
    arguments = make_parser(__doc__, rounds=7).parse_args()
    programs = {_BETA: _ANSWERS[_BETA]} if arguments.small else _ANSWERS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = folder / "given.json"
        texts = few_passages(_N_TEXTS) if arguments.small else natural_passages(_N_TEXTS)
        question = (few_questions if arguments.small else questions)(1)[0]
        given.write_text(json.dumps({"texts": texts, "question": question}), encoding="utf-8")
        environment = {
            # As after an ordinary installation: byte code is compiled once, ahead of the rounds.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "integrations" / "langchain")]),
            "NUMBA_CACHE_DIR": "",
        }
        imports: dict[str, list[dict[str, Any]]] = {name: [] for name in _IMPORTS}
        answers: dict[str, dict[str, list[dict[str, Any]]]] = {name: {"cold": [], "warm": []} for name in programs}
        for i in range(arguments.rounds + 1):
            for name, statement in _IMPORTS.items():
                program = _IMPORT.format(statement=statement, heavy=_HEAVY)
                imports[name].append(run_child(["-c", program], environment))
            for j, (name, program) in enumerate(programs.items()):
                for state, cache in (("cold", folder / f"cold-{i}-{j}"), ("warm", folder / "warm")):
                    answers[name][state].append(_answer(program, given, {**environment, "XDG_CACHE_HOME": str(cache)}))
        for done in (*imports.values(), *(runs for states in answers.values() for runs in states.values())):
            del done[0]  # the round that compiled the byte code and filled the warm caches
    result = _result(imports, answers, arguments.rounds)
    result.show() if arguments.small else result.write()


def _answer(program: str, given: Path, environment: dict[str, str]) -> dict[str, Any]:
    start = time.monotonic()
    shown: dict[str, Any] = run_child(["-c", _READ + program + _SHOW, str(given)], environment)
    ended = time.monotonic()
    if not shown["results"]:
        raise SystemExit("the question found nothing: there is no first answer to time")
    at = shown.pop("at")
    return {**shown, "seconds": at - start, "to_exit": ended - start}


def _result(
    imports: dict[str, list[dict[str, Any]]], answers: dict[str, dict[str, list[dict[str, Any]]]], rounds: int
) -> Result:
    result = Result(
        "startup",
        "Start-up",
        [
            f"{rounds} interleaved rounds of fresh processes, medians of seconds passed; beside them CPU seconds of "
            "all threads, which depend less on what else the machine does. Files are in the page cache; byte code is "
            "compiled, as after any first run.",
            f"First answer: from before the process is started to the results of one question over {_N_TEXTS} real "
            "texts, indexing included. Cold: an empty per-user cache folder each time, so numba would compile; warm: "
            "the folder of the runs before.",
        ],
        [],
        ["numpy", "numba", "tokenizers", "langchain-core", "torch"],
        "python -m benchmarks.startup",
        raw={"imports": imports, "answers": answers},
    )
    imported: list[list[Cell]] = [
        [name, median([r["seconds"] for r in runs]), runs[0]["modules"], ", ".join(runs[0]["heavy"]) or "none"]
        for name, runs in imports.items()
    ]
    result.tables.append(Table("Import", ("statement", "seconds", "modules", f"of {', '.join(_HEAVY)}"), imported))
    answered: list[list[Cell]] = []
    for name, states in answers.items():
        figures = [median([r[k] for r in states[s]]) for k in ("seconds", "cpu", "to_exit") for s in ("cold", "warm")]
        loaded = [package for package in ("torch", "numba") if states["warm"][0][package]]
        answered.append([name, *figures, ", ".join(loaded) or "neither"])
    columns = (
        *("program", "answer, cold", "answer, warm", "CPU of the answer, cold", "CPU of the answer, warm"),
        *("process to its end, cold", "process to its end, warm", "imports torch, numba"),
    )
    result.tables.append(Table("Process start to first answer, seconds", columns, answered))
    first = imports["import sidr_rag"]
    seconds = {state: median([r["seconds"] for r in runs]) for state, runs in answers[_BETA].items()}
    heavy = {name for run in first for name in run["heavy"]} & {"torch", "transformers", "numba"}
    result.musts = [
        Must("import sidr_rag, seconds", median([r["seconds"] for r in first]), 0.3),
        Must("import sidr_rag, of torch, transformers and numba imported", len(heavy), 0),
        Must("first answer through LangChain, cold cache, seconds", seconds["cold"], 4.0),
        Must("first answer through LangChain, warm cache, seconds", seconds["warm"], 2.0),
    ]
    return result


if __name__ == "__main__":
    main()
