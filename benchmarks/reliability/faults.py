"""A disk that refuses: every file operation of every call fails once, or from then on; nothing is lost or half done."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from benchmarks.reliability.model import Doc, Model, add_docs, passages_differ, searches_differ, stray_files
from benchmarks.reliability.parts import Parts
from benchmarks.reliability.script import ASKS
from sidr_rag import SiDR
from sidr_rag.errors import StorageError


@dataclass
class Disk:
    """Counts file operations, and refuses the nth, or all from the nth on.

    Attributes:
        at: which operation fails, from 1; 0 for none.
        lasting: whether all later ones fail too.
        number: the errno.
        seen: operations so far.
    """

    at: int
    lasting: bool
    number: int
    seen: int = 0

    @property
    def struck(self) -> bool:
        """Whether anything was refused."""
        return 0 < self.at <= self.seen

    def step(self) -> None:
        """Count one operation.

        Raises:
            OSError: if it is to fail.
        """
        self.seen += 1
        if self.at and (self.seen == self.at or (self.lasting and self.seen > self.at)):
            raise OSError(self.number, os.strerror(self.number))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Put this disk under Python's file operations; a refused write has written its first half."""
        open_, fsync, replace, fdopen, mkdir = os.open, os.fsync, os.replace, os.fdopen, os.mkdir

        def guarded(operation: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **options: Any) -> Any:
                self.step()
                return operation(*arguments, **options)

            return run

        def guarded_open(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self.step()
            return open_(path, flags, *arguments, **options)

        def guarded_fdopen(*arguments: Any, **options: Any) -> Any:
            return _HalfWriting(fdopen(*arguments, **options), self)

        with (
            mock.patch.object(os, "open", guarded_open),
            mock.patch.object(os, "fsync", guarded(fsync)),
            mock.patch.object(os, "replace", guarded(replace)),
            mock.patch.object(os, "mkdir", guarded(mkdir)),
            mock.patch.object(os, "fdopen", guarded_fdopen),
        ):
            yield


class _HalfWriting:
    """A file whose refused writes leave half of the bytes behind."""

    def __init__(self, file: IO[bytes], disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: Any) -> int:
        try:
            self._disk.step()
        except OSError:
            self._file.write(memoryview(data).cast("B")[: len(data) // 2])
            self._file.flush()
            raise
        return self._file.write(data)

    def __enter__(self) -> _HalfWriting:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def docs(prefix: str, n: int, group: int = 0) -> list[tuple[str, Doc]]:
    """Passages that are the same at every run."""
    words = ("amber", "coral", "heron", "zephyr", "willow", "delta")
    return [
        (f"{prefix}{i}", Doc(" ".join(words[(i * j) % 6] for j in range(1, 3 + i % 9)), None, {"group": group + i % 4}))
        for i in range(n)
    ]


@dataclass(frozen=True)
class Case:
    """A call, and what it makes of a model; `copy` is where it may save."""

    name: str
    call: Callable[[SiDR, Path], Any]
    change: Callable[[Model], Any] = lambda model: None


CASES = (
    Case("add", lambda s, _: add_docs(s, docs("new", 30)), lambda m: m.add(docs("new", 30))),
    Case("replace", lambda s, _: add_docs(s, docs("a", 20, 9)), lambda m: m.add(docs("a", 20, 9))),
    Case("delete", lambda s, _: s.delete(["a1", "a2", "b3"]), lambda m: m.delete(["a1", "a2", "b3"])),
    Case(
        "delete most",
        lambda s, _: s.delete([f"a{i}" for i in range(35)]),
        lambda m: m.delete([f"a{i}" for i in range(35)]),
    ),
    Case("compact", lambda s, _: s.compact()),
    Case("purge", lambda s, _: s.compact(purge=True)),
    Case("save", lambda s, copy: s.save(copy)),
)


def prepare(parts: Parts, folder: Path) -> Model:
    """A store of several segments with deleted passages, and its model."""
    model = Model()
    with parts.create(folder) as sidr:
        for items in (docs("a", 40), docs("b", 30), docs("c", 10), docs("d", 5)):
            add_docs(sidr, items)
            model.add(items)
        sidr.delete(["a7", "b2"])
        model.delete(["a7", "b2"])
    return model


def run_faults(where: Path, stride: int = 1) -> dict[str, Any]:
    """Fail every file operation of every call, one at a time.

    Args:
        where: an empty folder for the stores.
        stride: try only every nth operation, beginning with the first.

    Returns:
        Counts of faults injected, refused calls and calls that succeeded all the same.

    Raises:
        AssertionError: if a call fails otherwise than with StorageError, changes something although it failed, leaves
            the store unusable, or leaves files behind after the next write.
    """
    started = time.perf_counter()
    parts = Parts.load()
    base = where / "base"
    model = prepare(parts, base)
    counts: Counter[str] = Counter()
    for case in CASES:
        for lasting, number in ((False, errno.EIO), (True, errno.ENOSPC)):
            for at in range(1, 1000, stride):
                disk = Disk(at, lasting, number)
                outcome = _one(parts, base, where / "store", model, case, disk)
                shutil.rmtree(where / "store")
                shutil.rmtree(where / "copy", ignore_errors=True)
                if not disk.struck:
                    break
                counts["faults injected"] += 1
                counts[f"{case.name}: {outcome}"] += 1
    return {**dict(sorted(counts.items())), "seconds": round(time.perf_counter() - started, 1)}


def _one(parts: Parts, base: Path, folder: Path, before: Model, case: Case, disk: Disk) -> str:
    shutil.copytree(base, folder)
    copy = folder.parent / "copy"
    after = before.copy()
    case.change(after)
    where = f"{case.name}, operation {disk.at}, {'lasting ' if disk.lasting else ''}{errno.errorcode[disk.number]}"
    with parts.open(folder) as sidr, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outcome = "done"
        with disk.installed():
            try:
                case.call(sidr, copy)
            except StorageError:
                outcome = "refused"
            _end_of_merging()
        state = before if outcome == "refused" else after
        _same(sidr, state, parts, f"{where}: {outcome}, then")
        case.call(sidr, copy)
        _same(sidr, after, parts, f"{where}: {outcome}, and again")
        sidr.add(["amber at the end"], ids=["last"])
        after.add([("last", Doc("amber at the end", None, {}))])
    with parts.open(folder) as sidr:
        _same(sidr, after, parts, f"{where}: {outcome}, and opened again")
    strays = stray_files(folder)
    # A segment that could not be unlinked goes when the next process writes.
    assert not strays, f"{where}: {outcome}, left {strays}"
    if copy.exists():
        after.delete(["last"])
        with parts.open(copy) as sidr:
            _same(sidr, after, parts, f"{where}: the copy")
        assert not stray_files(copy), f"{where}: the copy has {stray_files(copy)}"
    return outcome


def _end_of_merging() -> None:
    """A merge in the background meets the same disk."""
    for thread in threading.enumerate():
        if thread.name == "sidr-merge":
            thread.join()


def _same(sidr: SiDR, model: Model, parts: Parts, where: str) -> None:
    fault = passages_differ(sidr, model) or searches_differ(sidr, model, ASKS, parts)
    assert fault is None, f"{where}: {fault}"
