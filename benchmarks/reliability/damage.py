"""Derived files of a closed store are damaged: that costs time and a warning, and changes no answer."""

from __future__ import annotations

import math
import os
import random
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reliability.faults import docs, prepare
from benchmarks.reliability.model import Model, add_docs, passages_differ, searches_differ
from benchmarks.reliability.parts import Parts
from benchmarks.reliability.script import ASKS
from sidr_rag import SiDR


class Base(NamedTuple):
    """An undamaged store: closed, with embeddings, several segments and deleted passages."""

    folder: Path
    model: Model
    reranked: list[list[tuple[str, float]]]


def make_base(parts: Parts, folder: Path) -> Base:
    """A store to damage copies of."""
    model = prepare(parts, folder)
    with parts.open(folder) as sidr:
        return Base(folder, model, _reranked(sidr))


def _reranked(sidr: SiDR) -> list[list[tuple[str, float]]]:
    found = sidr.search(["amber coral", "zephyr"], k=5, rerank=5)
    return [[(r.passage.id, r.score) for r in results] for results in found]


def _alike(found: list[list[tuple[str, float]]], expected: list[list[tuple[str, float]]]) -> bool:
    """The same passages in the same order; an embedding made anew, among other texts, may differ in the last bit."""
    ids = [[[passage_id for passage_id, _ in results] for results in ranked] for ranked in (found, expected)]
    scores = [[score for results in ranked for _, score in results] for ranked in (found, expected)]
    return ids[0] == ids[1] and all(
        math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for a, b in zip(*scores, strict=True)
    )


class Harm(NamedTuple):
    """One way to damage a file."""

    name: str
    do: Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def overwrite(path: Path, rng: random.Random) -> None:
    """Put random bytes over some of the file's."""
    data = bytearray(path.read_bytes())
    start, n = rng.randrange(len(data)), rng.choice((1, 2, 8, 64, 512))
    data[start : start + n] = rng.randbytes(len(data[start : start + n]))
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    """Cut the file off somewhere."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def _linked(path: Path, _: random.Random) -> None:
    aside = path.parent.parent.parent / f"aside-{path.name}"
    path.replace(aside)
    path.symlink_to(aside)


def _folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _swapped(path: Path, rng: random.Random) -> None:
    other = rng.choice(sorted(p for p in path.parent.iterdir() if p != path and p.suffix == path.suffix))
    aside = path.with_name("aside")
    path.replace(aside)
    other.replace(path)
    aside.replace(other)


def _zeroed(path: Path, _: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _scrambled(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


HARMS = (
    Harm("emptied", lambda path, _: os.truncate(path, 0)),
    Harm("halved", lambda path, _: os.truncate(path, path.stat().st_size // 2)),
    Harm("one byte short", lambda path, _: os.truncate(path, path.stat().st_size - 1)),
    Harm("zeroed", _zeroed),
    Harm("removed", lambda path, _: path.unlink()),
    Harm("swapped", _swapped),
    Harm("a symbolic link", _linked),
    Harm("a folder", _folder),
    Harm("a pipe", _pipe),
    Harm("random bytes", _scrambled),
)
EDITS = (Harm("a bit flipped", flip), Harm("bytes overwritten", overwrite), Harm("cut off", cut))


def run_derived(where: Path, edits: int, seed: int = 1) -> dict[str, Any]:
    """Damage segments and embeddings: ten ways each, then by random edits.

    Returns:
        How many copies were damaged, and how many were mended with a warning.

    Raises:
        AssertionError: if a damaged copy does not open with the right results, or is not whole after the next write.
    """
    started = time.perf_counter()
    parts = Parts.load()
    base = make_base(parts, where / "base")
    counts: Counter[str] = Counter()
    rng = random.Random(seed)
    segments = sorted(p.relative_to(base.folder) for p in base.folder.glob("segments/*.seg"))
    for harm in HARMS:
        _derived(parts, base, where, rng.choice(segments), harm, rng, counts)
        if harm.name not in ("swapped", "a symbolic link"):
            _derived(parts, base, where, Path("embeddings.db"), harm, rng, counts)
    for i in range(edits):
        name = Path("embeddings.db") if i % 4 == 0 else rng.choice(segments)
        _derived(parts, base, where, name, rng.choice(EDITS), rng, counts)
    return {**dict(sorted(counts.items())), "seconds": round(time.perf_counter() - started, 1)}


def _derived(
    parts: Parts, base: Base, where: Path, name: Path, harm: Harm, rng: random.Random, counts: Counter[str]
) -> None:
    folder = where / "damaged"
    shutil.copytree(base.folder, folder)
    state = rng.getstate()
    harm.do(folder / name, rng)
    said = f"{name.suffix} {harm.name}, state {hash(state)}"
    read_only = rng.random() < 0.5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with parts.open(folder, read_only=read_only) as sidr:
            _right(sidr, base.model, parts, said)
            found = _reranked(sidr)
            assert _alike(found, base.reranked), f"{said}: re-ranked otherwise"
    counts["derived files damaged"] += 1
    counts["derived files damaged, warned"] += any(issubclass(w.category, RuntimeWarning) for w in told)
    after = base.model.copy()
    after.add(docs("late", 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with parts.open(folder) as sidr:
            add_docs(sidr, docs("late", 3))
            _right(sidr, after, parts, f"{said}, after the next write")
    if name.suffix == ".seg":
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            with parts.open(folder) as sidr:
                _right(sidr, after, parts, f"{said}, mended")
    shutil.rmtree(folder)


def _right(sidr: SiDR, model: Model, parts: Parts, said: str) -> None:
    fault = passages_differ(sidr, model) or searches_differ(sidr, model, ASKS, parts)
    assert fault is None, f"{said}: {fault}"
