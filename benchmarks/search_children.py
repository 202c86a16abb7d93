"""Searchers in processes of their own: a crash or a lack of memory costs one row, not the table."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from benchmarks.children import ONE_CORE, ROOT
from benchmarks.corpora import Corpus
from benchmarks.searchers import searcher

_BUILD_SECONDS = 1800.0
_ANSWER_SECONDS = 600.0


class ChildFailedError(Exception):
    """A child gave no answer; the message is short enough for a table."""


class Served:
    """A child that holds one searcher's index open."""

    def __init__(self, name: str, corpus: Corpus, index: Path) -> None:
        """Start it, and open the index.

        Raises:
            ChildFailedError: if that does not work.
        """
        self._log = _log(name, "serve", corpus)
        self._pipe = subprocess.Popen(
            _command("serve", name, corpus, index),
            cwd=ROOT,
            env={**os.environ, **ONE_CORE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
        )
        self.opened = self.ask("open")

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One request and its answer.

        Raises:
            ChildFailedError: if the child fails, ends, or takes too long.
        """
        assert self._pipe.stdin is not None
        assert self._pipe.stdout is not None
        try:
            self._pipe.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._pipe.stdin.flush()
        except OSError as e:
            raise ChildFailedError(f"ended before {do}") from e
        if not select.select([self._pipe.stdout], [], [], _ANSWER_SECONDS)[0]:
            self._pipe.kill()
            raise ChildFailedError(f"no answer to {do} in {_ANSWER_SECONDS:.0f} s")
        line = self._pipe.stdout.readline()
        if not line:
            raise ChildFailedError(f"ended at {do} with status {self._pipe.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ChildFailedError(answer["failed"])
        return answer

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._pipe.kill()
        self._pipe.wait()
        for stream in (self._pipe.stdin, self._pipe.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def built(names: Sequence[str], corpus: Corpus, *, jobs: int = 2) -> dict[str, Path | str]:
    """Where each searcher's index lies, made now where it is not there yet; or why there is none."""
    places: dict[str, Path | str] = {}
    to_build: dict[Path, str] = {}
    for name in names:
        most = searcher(name).most_passages
        if most is not None and len(corpus) > most:
            places[name] = f"not run beyond {most:,}"
            continue
        places[name] = place = _place(name, corpus)
        if not searcher(name).in_memory and not (place / "built.json").exists():
            to_build.setdefault(place, name)
    with ThreadPoolExecutor(jobs) as pool:
        failures = dict(zip(to_build, pool.map(lambda p: _built(to_build[p], corpus, p), to_build), strict=True))
    return {name: failures.get(place) or place if isinstance(place, Path) else place for name, place in places.items()}


def build_facts(index: Path) -> dict[str, Any]:
    """What building a kept index took."""
    facts: dict[str, Any] = json.loads((index / "built.json").read_text(encoding="utf-8"))
    return facts


def measured_build(name: str, corpus: Corpus, index: Path) -> dict[str, Any]:
    """Build in a child, and say what it took: seconds, bytes of memory before and at most, bytes of the index.

    Raises:
        ChildFailedError: if it fails or takes too long.
    """
    try:
        with _log(name, "build", corpus) as log:
            done = subprocess.run(
                _command("build", name, corpus, index),
                cwd=ROOT,
                env={**os.environ, **ONE_CORE},
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                timeout=_BUILD_SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired as e:
        raise ChildFailedError(f"not built in {_BUILD_SECONDS / 60:.0f} minutes") from e
    if done.returncode or not done.stdout.strip():
        raise ChildFailedError(f"building ended with status {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "failed" in answer:
        raise ChildFailedError(answer["failed"])
    return answer


def _built(name: str, corpus: Corpus, place: Path) -> str | None:
    """Build and keep; returns why not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    for old in place.parent.glob(f"{searcher(name).index}-*"):
        shutil.rmtree(old, ignore_errors=True)
    unfinished = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        facts = measured_build(name, corpus, unfinished)
        (unfinished / "built.json").write_text(json.dumps(facts), encoding="utf-8")
        unfinished.rename(place)
    except ChildFailedError as e:
        return str(e)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return None


def _place(name: str, corpus: Corpus) -> Path:
    """The index's folder, which another version of its maker never shares."""
    kind = searcher(name)
    digest = hashlib.sha256()
    for package in kind.packages:
        try:
            digest.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            digest.update(f"{package} absent".encode())
    if kind.index == "sidr":
        for part in ("index", "text"):
            for source in sorted((ROOT / "sidr_rag" / part).glob("*.py")):
                digest.update(source.read_bytes())
    return corpus.folder.with_name(f"{corpus.folder.name}-indexes") / f"{kind.index}-{digest.hexdigest()[:12]}"


def _command(what: str, name: str, corpus: Corpus, index: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.served", what, name, str(corpus.folder), str(index)]


def _log(name: str, what: str, corpus: Corpus) -> IO[str]:
    """Where a child's own messages go: peers tell of their progress."""
    folder = corpus.folder.with_name("logs")
    folder.mkdir(exist_ok=True)
    return (folder / f"{corpus.folder.name}-{name}-{what}.log").open("w", encoding="utf-8")
