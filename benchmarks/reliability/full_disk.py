"""SQLite on a disk without room: file size limits, page limits and, where it can be mounted, a full file system."""

from __future__ import annotations

import resource
import shutil
import subprocess
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reliability.faults import prepare
from benchmarks.reliability.model import Doc, Model, add_docs, passages_differ, searches_differ
from benchmarks.reliability.parts import Parts, in_child
from benchmarks.reliability.script import ASKS
from sidr_rag import SiDR
from sidr_rag.errors import StorageError

_BIG = [(f"big{i}", Doc("amber coral " * 80, None, {"n": i})) for i in range(150)]


def run_limits(where: Path, steps: int = 24) -> dict[str, Any]:
    """Add to a store while no file may grow beyond a limit, at `steps` limits; each in a child of its own.

    Raises:
        AssertionError: if a call fails otherwise than with StorageError, or a failed call changed something.
    """
    parts = Parts.load()
    model = prepare(parts, where / "base")
    counts: Counter[str] = Counter()
    for i in range(steps):
        limit = 1 << 12 if i == 0 else 10_000 * i
        folder = where / f"limit-{i}"
        shutil.copytree(where / "base", folder)
        counts[in_child(partial(_under_limit, parts, folder, model, limit))] += 1
        shutil.rmtree(folder)
    return {"file size limits tried": steps, **counts}


def run_full(where: Path) -> dict[str, Any] | None:
    """Fill a small file system of its own with a store until nothing fits, then make room.

    Returns:
        Counts; None where no file system can be mounted.
    """
    mount = where / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    try:
        return dict(in_child(lambda: _until_full(mount)))
    finally:
        subprocess.run(["umount", str(mount)], check=False)


def _under_limit(parts: Parts, folder: Path, model: Model, limit: int) -> str:
    with parts.open(folder) as sidr, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        outcome = _try_add(sidr, _BIG)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        after = model.copy()
        after.add(_BIG)
        _same(sidr, after if outcome == "stored" else model, parts, f"limit {limit}: {outcome}")
        add_docs(sidr, _BIG)
        _same(sidr, after, parts, f"limit {limit}: {outcome}, then without a limit")
    with parts.open(folder) as sidr:
        _same(sidr, after, parts, f"limit {limit}: opened again")
    return outcome


def _until_full(mount: Path) -> dict[str, int]:
    parts = Parts.load()
    model = Model()
    counts: Counter[str] = Counter()
    ballast = mount / "ballast"
    ballast.write_bytes(bytes(300_000))
    with parts.create(mount / "store") as sidr, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for i in range(300):
            items = [(f"{i}-{j}", Doc("amber coral heron " * 20, None, {"n": j})) for j in range(20)]
            outcome = _try_add(sidr, items)
            counts[f"{outcome} while filling"] += 1
            if outcome == "stored":
                model.add(items)
            else:
                _same(sidr, model, parts, "full")
                if counts[f"{outcome} while filling"] == 5:
                    break
        assert counts["refused while filling"] == 5, "the disk was never full"
        ballast.unlink()
        items = [("after", Doc("zephyr at last", None, {}))]
        add_docs(sidr, items)
        model.add(items)
        _same(sidr, model, parts, "room again")
    with parts.open(mount / "store") as sidr:
        _same(sidr, model, parts, "opened again")
    return dict(counts)


def _try_add(sidr: SiDR, items: list[tuple[str, Doc]]) -> str:
    try:
        add_docs(sidr, items)
    except StorageError:
        return "refused"
    return "stored"


def _same(sidr: SiDR, model: Model, parts: Parts, where: str) -> None:
    fault = passages_differ(sidr, model) or searches_differ(sidr, model, ASKS, parts)
    assert fault is None, f"{where}: {fault}"
