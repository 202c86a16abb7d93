"""Processes that read a store beside one that writes it: commits are seen at once, whole, and in order."""

from __future__ import annotations

import mmap
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.reliability.parts import Parts


def run_processes(seconds: float, where: Path, readers: int = 2) -> dict[str, Any]:
    """Processes that read a store while another writes it: each commit is seen by the next search, in order.

    Raises:
        AssertionError: if a reader misses a commit, goes back, or sees a passage of none.
    """
    parts = Parts.load()
    parts.create(where).close()
    shared = mmap.mmap(-1, 16)  # the number of the last commit; whether the writer is done
    pids = [_fork(lambda: _follow(parts, where, shared)) for _ in range(readers)]
    pids.append(_fork(lambda: _lead(parts, where, shared, seconds)))
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    assert not any(statuses), f"a process failed, wait statuses {statuses}"
    return {"seconds": seconds, "reading processes": readers, "commits": int.from_bytes(shared[:8], "little")}


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _lead(parts: Parts, where: Path, shared: mmap.mmap, seconds: float) -> None:
    end = time.monotonic() + seconds
    number = 0
    try:
        with parts.open(where) as sidr:
            while time.monotonic() < end:
                number += 1
                ids = [f"counter-{i}" for i in range(3)]
                sidr.add(
                    [f"counter {i} turn{number}" for i in ids], ids=ids, metadatas=[{"version": number}] * len(ids)
                )
                shared[:8] = number.to_bytes(8, "little")
                if number % 40 == 0:
                    sidr.compact()
    finally:
        shared[8] = 1


def _follow(parts: Parts, where: Path, shared: mmap.mmap) -> None:
    last = 0
    with parts.open(where, read_only=True) as sidr:
        while not shared[8]:
            committed = int.from_bytes(shared[:8], "little")
            found = sidr.search("counter", first_stage="lexical")
            versions = {int(r.passage.metadata["version"]) for r in found}
            assert len(versions) <= 1, f"two commits in one answer: {versions}"
            assert len(found) in ((0, 3) if not committed else (3,)), f"{len(found)} passages"
            seen = versions.pop() if versions else 0
            assert seen >= committed, f"commit {committed} was made, and {seen} seen"
            assert seen >= last, f"went back from {last} to {seen}"
            last = seen
