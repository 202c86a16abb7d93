"""A writer is killed at random instants; the store is then what it was before or after the call in flight."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.model import Doc, Model, passages_differ, searches_differ, stray_files
from benchmarks.reliability.parts import Parts, in_child
from benchmarks.reliability.script import ASKS, Call, next_call, random_doc
from sidr_rag.errors import IndexFormatError
from sidr_rag.index import folder as store_folder

_LIFE = 20  # rounds that one store lives through
_BLOCK = 64  # passages to a block, so that one call makes several segments
_PATIENCE = 120.0
_STEPS = {"open", "os.rename", "os.remove", "sqlite3.connect"}


@dataclass
class _Round:
    """What the parent knows of a killed writer."""

    acked: int
    in_flight: bool


@dataclass
class _Subject:
    """A store under test, with the states it may be in."""

    folder: Path
    copy: Path
    model: Model = field(default_factory=Model)
    copies: list[Model | None] = field(default_factory=lambda: [None])


def run_kills(rounds: int, seed: int, where: Path) -> dict[str, Any]:
    """Kill a writer `rounds` times.

    Args:
        rounds: kills.
        seed: of the scripts; instants also depend on the machine's speed.
        where: an empty folder for the stores.

    Returns:
        Counts of what was killed and checked.

    Raises:
        AssertionError: at the first state that is neither the one before nor the one after, or lost something.
    """
    started = time.perf_counter()
    parts = Parts.load()
    Model({"p0": random_doc(random.Random(0))}).fill(parts.memory()).search("amber", first_stage="lexical")
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    span = _calibrate(parts, where)
    subject = _Subject(where, where)
    for number in range(rounds):
        if number % _LIFE == 0:
            shutil.rmtree(subject.folder.parent if number else where / "none", ignore_errors=True)
            subject = _new_subject(parts, where / f"store-{number}")
        script_seed = rng.getrandbits(48)
        mode = rng.choice(("instant", "instant", "ack", "step"))
        ended = _kill_one(parts, subject, script_seed, mode, rng, span)
        counts[f"killed: {mode}"] += 1
        try:
            _check(parts, subject, script_seed, ended, rng, counts)
        except AssertionError as e:
            raise AssertionError(f"round {number} of seed {seed}, script {script_seed}, mode {mode}: {e}") from None
    shutil.rmtree(subject.folder.parent, ignore_errors=True)
    return {"kills": rounds, **dict(sorted(counts.items())), "seconds": round(time.perf_counter() - started, 1)}


def _new_subject(parts: Parts, folder: Path) -> _Subject:
    folder.mkdir()

    def make() -> None:
        parts.create(folder / "store").close()

    in_child(make)
    return _Subject(folder / "store", folder / "copy")


def _calibrate(parts: Parts, where: Path) -> float:
    """Seconds that opening and eight calls take: the span of the instants."""
    subject = _new_subject(parts, where / "calibration")

    def work() -> float:
        start = time.perf_counter()
        _write(parts, subject, 1, -1, calls=8)
        return time.perf_counter() - start

    seconds = float(in_child(work))
    shutil.rmtree(subject.folder.parent)
    return seconds


def _write(parts: Parts, subject: _Subject, seed: int, sink: int, calls: int = 10**9) -> None:
    """The writer: every call is announced before and acknowledged after."""
    store_folder._BLOCK = _BLOCK
    rng, model = random.Random(seed), subject.model.copy()
    sidr = parts.open(subject.folder)
    for _ in range(calls):
        call = next_call(rng, model)
        _tell(sink, b"i")
        sidr = call.perform(sidr, parts, subject.copy)
        call.apply(model)
        _tell(sink, b"a")


def _tell(sink: int, what: bytes) -> None:
    if sink >= 0:
        os.write(sink, what)


def _kill_one(parts: Parts, subject: _Subject, seed: int, mode: str, rng: random.Random, span: float) -> _Round:
    instant, step, acks = rng.uniform(0, span), rng.randrange(1, 60), rng.randrange(1, 8)
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(source)
        try:
            if mode == "step":
                _die_at_step(step)
            _write(parts, subject, seed, sink)
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(sink, b"x" + traceback.format_exc().encode())
        os._exit(1)
    os.close(sink)
    seen = b""
    deadline = time.monotonic() + _PATIENCE
    at = time.monotonic() + instant
    while time.monotonic() < deadline:
        if mode == "instant" and time.monotonic() >= at:
            break
        wait = (at if mode == "instant" else deadline) - time.monotonic()
        if select.select([source], [], [], max(wait, 0))[0]:
            part = os.read(source, 65_536)
            seen += part
            if not part or (mode == "ack" and seen.count(b"a") >= acks):
                break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while part := os.read(source, 65_536):
        seen += part
    os.close(source)
    if b"x" in seen:
        raise AssertionError(f"the writer failed by itself: {seen[seen.index(b'x') :].decode()}")
    assert time.monotonic() < deadline, "the writer did not come to the point where it should be killed"
    acked = seen.count(b"a")
    return _Round(acked, seen.count(b"i") > acked)


def _die_at_step(step: int) -> None:
    """Kill this process before its nth file operation."""
    left = [step]

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event in _STEPS:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _check(parts: Parts, subject: _Subject, seed: int, ended: _Round, rng: random.Random, counts: Counter[str]) -> None:
    script, model = random.Random(seed), subject.model.copy()
    for _ in range(ended.acked):
        call = next_call(script, model)
        call.apply(model)
        if call.kind == "save":
            subject.copies = [model.copy()]
    states = [model]
    flying: Call | None = None
    if ended.in_flight:
        flying = next_call(script, model)
        states.append(model.copy())
        flying.apply(states[-1])
        if flying.kind == "save":
            # A first copy that was interrupted may also be the empty store that it began as.
            subject.copies += [model.copy(), *([Model()] if None in subject.copies else [])]
    sweep = random_doc(rng)
    read_only = rng.random() < 0.5
    which, copy = in_child(lambda: _examine(parts, subject, states, sweep, read_only))
    subject.model = states[which]
    subject.copies = [subject.copies[copy]]
    subject.model.add([("sweep", sweep)])
    counts["calls acknowledged"] += ended.acked
    counts["searches compared"] += len(ASKS) * 2
    counts["passages compared"] += len(subject.model.docs)
    counts[f"in flight: {flying.kind if flying else 'none'}"] += 1
    if flying and flying.kind in ("add", "delete"):
        counts[f"in flight, found {'after' if which else 'before'}"] += 1


def _examine(parts: Parts, subject: _Subject, states: list[Model], sweep: Doc, read_only: bool) -> list[int]:
    with parts.open(subject.folder, read_only=read_only) as sidr:
        faults = [passages_differ(sidr, state) for state in states]
        assert None in faults, f"acknowledged or half-done calls: {faults}"
        which = faults.index(None)
        fault = searches_differ(sidr, states[which], ASKS, parts)
        assert fault is None, f"after the kill: {fault}"
    state = states[which].copy()
    state.add([("sweep", sweep)])
    with parts.open(subject.folder) as sidr:
        sidr.add([sweep.text], ids=["sweep"], titles=[sweep.title], metadatas=[sweep.metadata])
        fault = passages_differ(sidr, state) or searches_differ(sidr, state, ASKS, parts)
        assert fault is None, f"after the next write: {fault}"
    strays = stray_files(subject.folder)
    assert not strays, f"after the next write: {strays}"
    return [which, _examine_copy(parts, subject)]


def _examine_copy(parts: Parts, subject: _Subject) -> int:
    try:
        with parts.open(subject.copy, read_only=True) as sidr:
            faults = ["none there" if state is None else passages_differ(sidr, state) for state in subject.copies]
    except IndexFormatError as e:
        if None not in subject.copies:
            raise AssertionError(f"an acknowledged copy cannot be opened: {e}") from None
        return subject.copies.index(None)
    assert None in faults, f"the copy is of no state that was saved: {faults}"
    return faults.index(None)
