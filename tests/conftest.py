import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

# Before anything imports Triton: without a GPU its kernels are tested in its interpreter.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

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
            timeout=120,
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
