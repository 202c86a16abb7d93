"""The process that builds one searcher's index, or holds it open and answers.

A serving process writes one JSON line for each that it reads, so that the measured processes can take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.corpora import Corpus
from benchmarks.machine import forget_peak, memory_bytes
from benchmarks.searchers import NAMES, PeerAbsentError, searcher
from benchmarks.searchers.base import BatchSearcher
from benchmarks.timing import clocked


def main() -> None:
    """Build, or serve until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "serve"))
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("index", type=Path)
    arguments = parser.parse_args()
    # Peers print what they do: that goes to standard error, and the real output carries answers alone.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):  # if memory runs out, this process goes and not its parent
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    serving = _Serving(arguments.name, Corpus(arguments.corpus), arguments.index)
    if arguments.what == "build":
        answer(_attempted(serving.build))
        return
    for line in sys.stdin:
        request = json.loads(line)
        answer(_attempted(getattr(serving, request.pop("do")), **request))


def _attempted(call: Any, **arguments: Any) -> dict[str, Any]:
    try:
        result: dict[str, Any] = call(**arguments)
    except PeerAbsentError as e:
        return {"failed": str(e)}
    except Exception as e:  # a peer may raise anything; its row says so, and the others go on
        print(f"{type(e).__name__}: {e}"[:2000], file=sys.stderr)
        return {"failed": f"failed: {type(e).__name__}"}
    return result


class _Serving:
    """The requests that a child answers."""

    def __init__(self, name: str, corpus: Corpus, index: Path) -> None:
        self._searcher = searcher(name)(corpus, index)
        self._n = 0

    def build(self) -> dict[str, Any]:
        """Make the index, in the folder or in memory; loading modules and models is not counted."""
        self._searcher.load()
        forget_peak()
        before, _ = memory_bytes()
        _, seconds = clocked(self._searcher.open if self._searcher.in_memory else self._searcher.build)
        _, peak = memory_bytes()
        if not self._searcher.in_memory:
            self._searcher.open()
        size = self._searcher.index_bytes()
        return {"wall": seconds.wall, "cpu": seconds.cpu, "before": before, "peak": peak, "bytes": size}

    def open(self) -> dict[str, Any]:
        """Open the index."""
        self._searcher.load()
        before, _ = memory_bytes()
        self._searcher.open()
        now, _ = memory_bytes()
        return {"bytes": self._searcher.index_bytes(), "before": before, "resident": now}

    def take(self, name: str, seconds: float, least: int) -> dict[str, Any]:
        """Make a set's queries ready, and answer each once: as many as fit the time are measured later."""
        self._searcher.take(name)
        self._searcher.search(0)  # compiles and fills what is made on first use
        self._n = 0
        recalls, start = [], time.perf_counter()
        for i in range(len(self._searcher.corpus.best(name))):
            found = self._searcher.search(i)
            self._n += 1
            if self._searcher.has_recall:
                spent = time.perf_counter()
                recalls.append(self._searcher.corpus.recall(name, i, self._searcher.rows(found)))
                start += time.perf_counter() - spent
            if self._n >= least and time.perf_counter() - start > seconds:
                break
        recall = sum(recalls) / len(recalls) if recalls else None
        return {"queries": self._n, "recall": recall, "settings": self._searcher.settings()}

    def round(self) -> dict[str, Any]:
        """Milliseconds of each query, one at a time."""
        cpu, wall = [], []
        for i in range(self._n):
            wall_start, cpu_start = time.perf_counter_ns(), time.process_time_ns()
            self._searcher.search(i)
            cpu.append((time.process_time_ns() - cpu_start) / 1e6)
            wall.append((time.perf_counter_ns() - wall_start) / 1e6)
        return {"cpu": cpu, "wall": wall}

    def batch(self) -> dict[str, Any]:
        """Milliseconds of all queries in one call."""
        assert isinstance(self._searcher, BatchSearcher)
        _, seconds = clocked(self._searcher.search_all)
        return {"cpu": seconds.cpu * 1e3, "wall": seconds.wall * 1e3}


if __name__ == "__main__":
    main()
