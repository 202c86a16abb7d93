import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "transformers", "numba", "huggingface_hub", "typer", "pypdf")


def loaded_after(code):
    program = f"{code}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root, timeout=300
    )
    return done.stdout.strip().splitlines()[-1]


def test_importing_is_light():
    assert loaded_after("import sidr_rag.encoder") == "[]"


def test_encoding_a_query_imports_no_torch():
    code = (
        "from sidr_rag.encoder import load_encoder\n"
        "encoder = load_encoder(device='cpu')\n"
        "assert len(encoder.encode_queries(['who proposed relativity']).dims) >= 64"
    )
    loaded = loaded_after(code)
    assert "torch" not in loaded
    assert "transformers" not in loaded


def test_everything_runs_without_torch():
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from sidr_rag.encoder import load_encoder\n"
        "encoder = load_encoder()\n"
        "assert len(encoder.encode_queries(['who proposed relativity']).dims) >= 64\n"
        "assert len(encoder.encode_passages(['it was proposed in 1915']).dims) >= 256\n"
        "del sys.modules['torch'], sys.modules['transformers']"
    )
    assert "torch" not in loaded_after(code)
