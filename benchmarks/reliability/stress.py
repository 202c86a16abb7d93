"""Readers in threads beside a writer: every answer is checked to come from one consistent state."""

from __future__ import annotations

import itertools
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.reliability.parts import Parts
from sidr_rag import SiDR

_ANCHORS = 50
_GROUPS = 12
_MEMBERS = 5
_WANDERERS = 300


def text_of(passage_id: str, version: int) -> str:
    """What the passage of an id says in a version: nothing else is ever stored under it."""
    kind = passage_id.split("-")[0]
    filler = " ".join(("amber", "coral", "heron", "delta")[: 1 + version % 4])
    return f"{kind} {passage_id.replace('-', '')} {filler} turn{version}"


def run_stress(seconds: float, where: Path | None, readers: int = 8, seed: int = 1) -> dict[str, Any]:
    """One writer and many readers on one object.

    Args:
        seconds: how long.
        where: a new folder for the store; None keeps it in memory.
        readers: threads that search.
        seed: of the choices.

    Returns:
        Counts of calls and checked results.

    Raises:
        AssertionError: at the first result that belongs to no consistent state.
    """
    parts = Parts.load()
    sidr = parts.memory() if where is None else parts.create(where)
    with sidr:
        _seed_store(sidr)
        counts, faults = _race(sidr, seconds, readers, seed)
        if faults:
            raise AssertionError(faults[0])
        _check_anchors(sidr)
    if where is not None:
        with parts.open(where) as sidr:
            _check_anchors(sidr)
            _check_group(sidr, 0)
    return {"seconds": seconds, "readers": readers, **counts}


def _seed_store(sidr: SiDR) -> None:
    ids = [f"anchor-{i}" for i in range(_ANCHORS)]
    sidr.add([text_of(i, 0) for i in ids], ids=ids, metadatas=[{"version": 0, "kind": "anchor"}] * _ANCHORS)
    for group in range(_GROUPS):
        _put_group(sidr, group, 0)


def _put_group(sidr: SiDR, group: int, version: int) -> None:
    ids = [f"group{group}-{i}" for i in range(_MEMBERS)]
    sidr.add([text_of(i, version) for i in ids], ids=ids, metadatas=[{"version": version, "kind": "group"}] * _MEMBERS)


def _race(sidr: SiDR, seconds: float, readers: int, seed: int) -> tuple[Counter[str], list[str]]:
    end = time.monotonic() + seconds
    stop = threading.Event()
    tallies: list[Counter[str]] = []
    faults: list[str] = []

    def run(work: Callable[[random.Random], str], number: int) -> None:
        rng, tally = random.Random(seed * 1000 + number), Counter[str]()
        tallies.append(tally)
        try:
            while time.monotonic() < end and not stop.is_set():
                tally[work(rng)] += 1
        except BaseException:
            faults.append(traceback.format_exc())
            stop.set()

    threads = [threading.Thread(target=run, args=(lambda rng: _read(sidr, rng), i + 1)) for i in range(readers)]
    threads.append(threading.Thread(target=run, args=(lambda rng: _write(sidr, rng), 0)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 120)
        assert not thread.is_alive(), "a thread hangs"
    return sum(tallies, Counter[str]()), faults


def _write(sidr: SiDR, rng: random.Random) -> str:
    choice = rng.random()
    version = rng.randrange(1, 1_000_000)
    if choice < 0.4:
        _put_group(sidr, rng.randrange(_GROUPS), version)
        return "groups replaced"
    if choice < 0.7:
        ids = sorted({f"wander-{rng.randrange(_WANDERERS)}" for _ in range(rng.choice((1, 5, 40)))})
        sidr.add([text_of(i, version) for i in ids], ids=ids, metadatas=[{"version": version}] * len(ids))
        return "calls of add"
    if choice < 0.97:
        sidr.delete([f"wander-{rng.randrange(_WANDERERS)}" for _ in range(rng.choice((1, 10)))])
        return "calls of delete"
    sidr.compact()
    return "calls of compact"


def _read(sidr: SiDR, rng: random.Random) -> str:
    choice = rng.random()
    if choice < 0.3:
        _check_anchors(sidr, {"kind": "anchor"} if choice < 0.1 else None)
        return "searches for the anchors"
    if choice < 0.7:
        _check_group(sidr, rng.randrange(_GROUPS))
        return "searches for a group"
    if choice < 0.9:
        found = sidr.search(["amber", "delta heron"], k=20, first_stage="lexical")
        for results in found:
            assert [r.rank for r in results] == list(range(1, len(results) + 1)), "ranks"
            assert all(a.score >= b.score for a, b in itertools.pairwise(results)), "scores rise"
            for r in results:
                _check_text(r.passage.id, r.passage.text, r.passage.metadata)
        return "searches for words"
    ids = [f"anchor-{rng.randrange(_ANCHORS)}", f"wander-{rng.randrange(_WANDERERS)}", f"group{rng.randrange(3)}-0"]
    got = sidr.get(ids)
    assert {p.id for p in got} >= {ids[0], ids[2]}, "a passage that is never deleted was not there"
    for p in got:
        _check_text(p.id, p.text, p.metadata)
    assert len(sidr) >= _ANCHORS + _GROUPS * _MEMBERS, "len"
    return "calls of get"


def _check_text(passage_id: str, text: str, metadata: Any) -> None:
    assert text == text_of(passage_id, metadata["version"]), f"{passage_id!r} has a text of another passage or version"


def _check_anchors(sidr: SiDR, condition: Any = None) -> None:
    found = sidr.search("anchor", k=1000, first_stage="lexical", filter=condition)
    assert [r.passage.id for r in found] == [f"anchor-{i}" for i in range(_ANCHORS)], f"{len(found)} anchors"
    for r in found:
        _check_text(r.passage.id, r.passage.text, r.passage.metadata)


def _check_group(sidr: SiDR, group: int) -> None:
    found = sidr.search(f"group{group}", k=1000, first_stage="lexical")
    mine = [r for r in found if r.passage.id.startswith(f"group{group}-")]
    assert len(mine) == _MEMBERS, f"{len(mine)} of {_MEMBERS} members of group {group}"
    assert len({r.passage.metadata["version"] for r in mine}) == 1, "members of two versions in one answer"
    for r in mine:
        _check_text(r.passage.id, r.passage.text, r.passage.metadata)
