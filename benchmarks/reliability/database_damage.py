"""The database of a closed store is edited at random: the damage is seen, or does no harm, or is counted here."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reliability.damage import EDITS, Base, make_base
from benchmarks.reliability.model import answers, contents
from benchmarks.reliability.parts import Parts, in_child
from benchmarks.reliability.script import ASKS
from sidr_rag.errors import IndexFormatError, SidrError, StorageError

_BATCH = 25


def run_database(where: Path, edits: int, seed: int = 1) -> dict[str, Any]:
    """Edit passages.db at random; every copy is opened in a child, so that a crash is seen.

    Returns:
        Counts: refused with this library's error, everything right, or wrong without a word (and of these, how many
        SQLite's own integrity check sees).

    Raises:
        AssertionError: for another exception, or a crash.
    """
    started = time.perf_counter()
    parts = Parts.load()
    base = make_base(parts, where / "base")
    right = json.loads(json.dumps(_state_of(parts, base.folder)))
    counts: Counter[str] = Counter()
    for start in range(0, edits, _BATCH):
        seeds = [seed * 1_000_003 + start + i for i in range(min(_BATCH, edits - start))]
        for outcome in in_child(partial(_edited, parts, base, where, right, seeds)):
            counts[outcome] += 1
    return {"database edits": edits, **dict(sorted(counts.items())), "seconds": round(time.perf_counter() - started, 1)}


def _state_of(parts: Parts, folder: Path) -> list[Any]:
    with parts.open(folder, read_only=True) as sidr:
        return [contents(sidr), answers(sidr, ASKS)]


def _edited(parts: Parts, base: Base, where: Path, right: list[Any], seeds: list[int]) -> list[str]:
    outcomes = []
    for seed in seeds:
        rng = random.Random(seed)
        folder = where / "edited"
        shutil.copytree(base.folder, folder)
        harm = rng.choice((*EDITS, *EDITS[:2]))
        harm.do(folder / "passages.db", rng)
        outcomes.append(_outcome(parts, folder, right, f"{harm.name}, edit {seed}"))
        shutil.rmtree(folder)
    return outcomes


def _outcome(parts: Parts, folder: Path, right: list[Any], said: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = json.loads(json.dumps(_state_of(parts, folder)))
    except SidrError as e:
        if "passages.db" in str(e) and isinstance(e, (IndexFormatError, StorageError)):
            return "refused"
        return f"refused without naming the file ({type(e).__name__})"
    except Exception as e:
        raise AssertionError(f"{said}: {type(e).__name__} instead of one of this library's errors") from e
    if found == right:
        return "right"
    a, b = ([dict(state[0]), state[1]] for state in (found, right))
    what = "texts, titles or metadata" if a[0].keys() == b[0].keys() else "which passages there are"
    if a[0] == b[0]:
        what = "answers only"
    return f"silently wrong ({what}), integrity_check {'sees' if _seen_by_sqlite(folder) else 'does not see'} it"


def _seen_by_sqlite(folder: Path) -> bool:
    connection = sqlite3.connect(folder / "passages.db")
    try:
        return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok")
    except sqlite3.Error:
        return True
    finally:
        connection.close()
