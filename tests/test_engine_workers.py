"""`num_workers`: the same store as without, or nothing stored."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from sidr_rag import SiDR
from sidr_rag.errors import InvalidInputError, InvalidTypeError, SidrError
from sidr_rag.text.workers import CountingWorkers
from sidr_rag.types import Passage

N = 5000  # more than starts the processes
TEXTS = [f"record {i % 1700} of the {'harbor' if i % 3 else 'rivière'} ledger {i}" for i in range(N)]


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def children(parent: int | None = None) -> list[int]:
    """Counting processes that this process, or another one, has started and that run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(status[1]) == (parent or os.getpid()) and status[0] != "Z" and b"counting_process" in command:
            found.append(int(folder.name))
    return found


def lists(sidr: SiDR) -> list[np.ndarray]:
    sidr._store.wait()  # for merges in the background
    views = sidr._store.current().views
    return [array for v in views for level in v.segment.levels for array in (level.doc_indptr, level.doc_dims)]


def assert_same_store(one: SiDR, other: SiDR) -> None:
    assert one.ids() == other.ids()
    assert all(np.array_equal(a, b) for a, b in zip(lists(one), lists(other), strict=True))


@pytest.mark.parametrize("on_conflict", ["replace", "skip"])
def test_add_gives_the_same_store(make, tmp_path, on_conflict) -> None:
    ids = [f"p{i % 4000}" for i in range(N)]
    titles = [None if i % 2 else f"title {i}" for i in range(N)]
    made = []
    for path, num_workers in ((None, 0), (tmp_path / "store", 2)):
        sidr = make(path)
        sidr.add(["before"], ids=["p7"])
        given = sidr.add(iter(TEXTS), ids=ids, titles=titles, on_conflict=on_conflict, num_workers=num_workers)
        assert given == ids
        made.append(sidr)
    assert_same_store(*made)


def test_from_passages(tmp_path) -> None:
    passages = [Passage(f"p{i}", text, metadata={"n": i}) for i, text in enumerate(TEXTS)]
    with SiDR.from_passages(iter(passages), path=tmp_path / "store", num_workers=1) as sidr:
        assert sidr.ids() == [p.id for p in passages]
        assert sidr.search("ledger 4321", k=1, first_stage="lexical", filter={"n": 4321})[0].passage.id == "p4321"


def test_an_error_stores_nothing(make) -> None:
    sidr = make(None)
    with pytest.raises(InvalidTypeError, match=rf"texts\[{N}\] is a int"):
        sidr.add([*TEXTS, 3], num_workers=1)
    assert len(sidr) == 0
    for wrong, error in ((-1, InvalidInputError), (1.5, InvalidTypeError), (True, InvalidTypeError)):
        with pytest.raises(error, match="num_workers"):
            sidr.add(["a river"], num_workers=wrong)
    assert len(sidr) == 0


@needs_proc
def test_a_killed_process_stores_nothing(make, tmp_path) -> None:
    sidr = make(tmp_path / "store")
    sidr.add(["kept"], ids=["kept"])

    def texts():
        for i, text in enumerate(TEXTS * 20):
            if i == 30_000:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
            yield text

    with pytest.raises(SidrError, match=r"num_workers=1: a counting process was ended by SIGKILL"):
        sidr.add(texts(), num_workers=1)
    assert sidr.ids() == ["kept"]
    assert children() == []
    sidr.add(["after"], ids=["after"])
    assert sidr.ids() == ["kept", "after"]


SCRIPT = """
    import signal, sys, time
    from sidr_rag import SiDR

    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored

    def texts():
        for i in range(6000):
            yield f"record {i} of the harbor ledger"
        if sys.argv[1] == "endless":
            print("ready", flush=True)
            time.sleep(500)

    sidr = SiDR.open(sys.argv[2], create=True)
    sidr.add(texts(), num_workers=2)  # no guard of __main__: the processes never run this script
    print(len(sidr))
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    return path


def test_a_script_without_a_guard(script, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(script), "all", str(tmp_path / "store")],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("6000\n", "", 0)


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_processes_end_with_an_interrupted_program(script, tmp_path, how) -> None:
    command = [sys.executable, str(script), "endless", str(tmp_path / "store")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        pids = children(program.pid)
        assert len(pids) == 2
        if how is signal.SIGINT:
            os.killpg(program.pid, how)  # as a terminal does: to every process of the group
        else:
            program.send_signal(how)
        _, errors = program.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while (left := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert errors.count("Traceback") == (how is signal.SIGINT)
    assert ("KeyboardInterrupt" in errors) == (how is signal.SIGINT)
    with SiDR.open(tmp_path / "store") as sidr:
        assert len(sidr) == 0


def test_the_command_line(tmp_path, monkeypatch) -> None:
    from sidr_rag.cli import main

    monkeypatch.chdir(tmp_path)
    lines = "".join(json.dumps({"id": f"p{i}", "text": text}) + "\n" for i, text in enumerate(TEXTS))
    (tmp_path / "docs.jsonl").write_text(lines, encoding="utf-8")
    started = []
    start = CountingWorkers._start
    monkeypatch.setattr(CountingWorkers, "_start", lambda self: (started.append(self._n_workers), start(self)))
    assert main(["index", "docs.jsonl", "--workers", "2"]) == 0
    assert started == [2]
    with SiDR.open(".sidr") as sidr:
        assert len(sidr) == N
    assert main(["index", "docs.jsonl", "--overwrite", "--workers", "-1"]) == 2
