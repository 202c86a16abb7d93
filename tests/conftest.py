import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# Before anything imports Triton: without a GPU its kernels are tested in its interpreter.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
from hypothesis import HealthCheck, settings

# No bound on time: a busy machine makes any one example slow.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

HERE = Path(__file__).resolve().parent
CASES = HERE.parent.parent / "shared" / "cases"


def _load_stubs():
    # With importlib imports the tests' own modules are on no path; one name serves tests and child processes.
    spec = importlib.util.spec_from_file_location("stub_encoders", HERE / "stub_encoders.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["stub_encoders"] = module
    spec.loader.exec_module(module)
    return module


stubs = sys.modules.get("stub_encoders") or _load_stubs()


@pytest.fixture(scope="session")
def tokenizer():
    """The bundled model's tokenizer: bert-base-uncased."""
    return stubs.default_tokenizer()


@pytest.fixture
def tiny():
    return stubs.TinyTokenizer()


@pytest.fixture
def make(tokenizer):
    """A function (path=None, **arguments) -> SiDR over a stub encoder; what it made is closed at the end."""
    made = []

    def build(path=None, *, tokenizer=tokenizer, **arguments):
        made.append(stubs.stub_sidr(tokenizer, path, **arguments))
        return made[-1]

    yield build
    for sidr in made:
        sidr.close()


@pytest.fixture(scope="session")
def case_inputs():
    """The folder of the public cases' input files."""
    folder = CASES / "inputs"
    if not folder.is_dir():
        pytest.skip("the cases' inputs are not on this machine")
    return folder


@pytest.fixture(scope="session")
def rankings(case_inputs):
    return json.loads((case_inputs / "rankings.json").read_text(encoding="utf-8"))["cases"]


@pytest.fixture
def grows_linearly():
    """A function (work, small, large): large is four times small, and a doubling may take at most 3.2 times as long.

    It is the thread's own CPU time, and the best of several rounds: others' work on the machine slows some of them, the
    larger text leaves the caches (eight times as long was seen), and what is quadratic takes sixteen times as long.
    What `fresh` makes, outside the measured time, is a second argument of each call.
    """

    def check(work, small, large, fresh=None):
        best = [math.inf, math.inf]
        for _ in range(6):
            for i, given in enumerate((small, large)):
                made = () if fresh is None else (fresh(),)
                start = time.thread_time()
                work(given, *made)
                best[i] = min(best[i], time.thread_time() - start)
            if best[1] < 10 and best[1] <= 3.2**2 * best[0] + 0.002:
                return
        pytest.fail(f"four times as much took {best[1]:.3f} s, where a quarter took {best[0]:.3f} s")

    return check


@pytest.fixture
def run_beside():
    """A function (*works): calls each work(n) over and over in a thread of its own, until all have had their rounds.

    What one of them raises is raised here.
    """

    def run(*works, seconds=1.0, rounds=3):
        stop, faults, done = threading.Event(), [], [0] * len(works)

        def repeat(i):
            try:
                while not stop.is_set():
                    works[i](done[i])
                    done[i] += 1
            except BaseException as e:
                faults.append(e)

        threads = [threading.Thread(target=repeat, args=(i,)) for i in range(len(works))]
        for thread in threads:
            thread.start()
        least = time.monotonic() + seconds
        while not faults and (time.monotonic() < least or min(done) < rounds):
            time.sleep(0.02)
        stop.set()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]

    return run


@pytest.fixture
def exit_status():
    """A function (work) -> status of a forked child that runs it: 0, or the alarm that ended its waiting."""

    def run(work):
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            try:
                work()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    return run


def _environment(changes):
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


@pytest.fixture
def child():
    """A function (source, *arguments, **environment) -> CompletedProcess of a Python that can import the stubs."""

    def run(source, *arguments, check=True, python=(), **environment):
        done = subprocess.run(
            [sys.executable, *python, "-c", source, *map(str, arguments)],
            env=_environment(environment),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=500,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def start_child():
    """A function (source, *arguments) -> Popen of such a Python with its output piped; ended with the test."""
    started = []

    def start(source, *arguments):
        command = [sys.executable, "-c", source, *map(str, arguments)]
        started.append(
            subprocess.Popen(command, env=_environment({}), stdout=subprocess.PIPE, text=True, encoding="utf-8")
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
