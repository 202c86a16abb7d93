"""Kills and faults at every single system call of a call, inside SQLite too, by `strace`'s injection."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reliability.faults import CASES, Case, prepare
from benchmarks.reliability.model import Doc, Model, passages_differ, searches_differ, stray_files
from benchmarks.reliability.parts import Parts, in_child
from benchmarks.reliability.script import ASKS
from sidr_rag.errors import StorageError

_CHANGING = ("openat", "write", "pwrite64", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "mkdir")
INJECTIONS = {
    "kill": (_CHANGING, "signal=SIGKILL"),
    "no space": (("write", "pwrite64", "ftruncate"), "error=ENOSPC"),
    "failed sync": (("fsync", "fdatasync"), "error=EIO"),
    "failed rename": (("rename",), "error=EIO"),
}


class Injection(NamedTuple):
    """What happens at the nth invocation of a system call."""

    kind: str
    call: str
    number: int

    @property
    def expression(self) -> str:
        """For strace."""
        return f"inject={self.call}:{INJECTIONS[self.kind][1]}:when={self.number}"


def available() -> bool:
    """Whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def run_syscalls(where: Path, names: Sequence[str] = (), kinds: Sequence[str] = (), stride: int = 1) -> dict[str, Any]:
    """Let every system call that changes a file be the last one, or fail, one at a time.

    Args:
        where: an empty folder.
        names: of the calls to try; all by default.
        kinds: of `INJECTIONS`; all by default.
        stride: try only every nth system call.

    Returns:
        Counts of injections and of the states found.

    Raises:
        AssertionError: for a state that is neither the one before nor the one after, a call that was refused or
            acknowledged and left the other state (a refused sync may leave either, if the process dies before it does
            anything else), or an error that is not StorageError.
    """
    started = time.perf_counter()
    parts = Parts.load()
    model = in_child_prepared(parts, where / "base")
    counts: Counter[str] = Counter()
    chosen = [c for c in CASES if not names or c.name in names]
    for case, kind in itertools.product(chosen, kinds or INJECTIONS):
        for call in INJECTIONS[kind][0]:  # strace counts the invocations of each system call by itself
            for number in range(1, 400, stride):
                outcome = _one(parts, where, model, case, Injection(kind, call, number))
                if outcome is None:
                    break
                counts["injections"] += 1
                counts[f"{kind}: {outcome}"] += 1
    return {**dict(sorted(counts.items())), "seconds": round(time.perf_counter() - started, 1)}


def in_child_prepared(parts: Parts, folder: Path) -> Model:
    """The store of `prepare`, made in a child, so that this process never had it open."""
    values = in_child(lambda: list(prepare(parts, folder).docs.items()))
    return Model({i: Doc(*doc) for i, doc in values})


def _one(parts: Parts, where: Path, model: Model, case: Case, fault: Injection) -> str | None:
    """What was found; None if the call was over before its nth system call."""
    folder, copy, log = where / "store", where / "copy", where / "log"
    for left in (folder, copy):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(where / "base", folder)
    said = _traced(parts, folder, copy, case, fault, log)
    struck = "INJECTED" in log.read_text() or "killed by SIGKILL" in log.read_text()
    if not struck:
        assert said == "done", f"{case.name}: {said} without a fault"
        return None
    here = f"{case.name}, {fault.kind} at {fault.call} number {fault.number}: {said or 'killed'}"
    assert said in ("", "done", "refused"), here
    after = model.copy()
    case.change(after)
    states = {"done": [after], "refused": [model], "": [model, after]}[said]
    if said == "refused" and fault.kind == "failed sync":
        # SQLite has written the commit before the sync that fails: a death right after it leaves that to recovery.
        states = [model, after]
    which = in_child(lambda: _examine(parts, folder, copy, case, states, after, here))
    if len(states) == 1 or model == after:
        return f"call {said or 'killed'}"
    return f"call {said or 'killed'}, found {'after' if which else 'before'}"


def _traced(parts: Parts, folder: Path, copy: Path, case: Case, fault: Injection, log: Path) -> str:
    go, start = os.pipe()
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(start)
        os.close(source)
        _act(parts, folder, copy, case, go, sink)
    os.close(go)
    os.close(sink)
    assert os.read(source, 1) == b"r", "the store could not be opened"
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", str(log), "-e", f"trace={fault.call}", "-e", fault.expression, "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    while "attached" not in (line := tracer.stderr.readline()):
        assert line, "strace could not attach"
    os.close(start)
    with os.fdopen(source, encoding="utf-8") as file:
        said = file.read()
    os.waitpid(pid, 0)
    tracer.stderr.close()
    tracer.wait()
    return said


def _act(parts: Parts, folder: Path, copy: Path, case: Case, go: int, sink: int) -> None:
    said = "died"
    try:
        sidr = parts.open(folder)
        os.write(sink, b"r")
        os.read(go, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                case.call(sidr, copy)
                said = "done"
            except StorageError:
                said = "refused"
    except BaseException:
        said = traceback.format_exc()
    for _ in range(3):
        try:
            os.write(sink, said.encode())
            break
        except OSError:
            continue
    os._exit(0)  # no tidying: the next process finds what this one has left


def _examine(parts: Parts, folder: Path, copy: Path, case: Case, states: list[Model], after: Model, here: str) -> int:
    with parts.open(folder) as sidr:
        faults = [passages_differ(sidr, state) for state in states]
        assert None in faults, f"{here}: {faults}"
        which = faults.index(None)
        fault = searches_differ(sidr, states[which], ASKS, parts)
        assert fault is None, f"{here}: {fault}"
        case.call(sidr, copy)
        fault = passages_differ(sidr, after) or searches_differ(sidr, after, ASKS, parts)
        assert fault is None, f"{here}, and again: {fault}"
        sidr.add(["one more"])
    assert not stray_files(folder), f"{here}: {stray_files(folder)}"
    if copy.exists():
        assert not stray_files(copy), f"{here}: the copy has {stray_files(copy)}"
        with parts.open(copy) as sidr:
            fault = passages_differ(sidr, after)
            assert fault is None, f"{here}: the copy: {fault}"
    return which
