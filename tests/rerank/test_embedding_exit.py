import subprocess
import sys

import pytest

PROGRAM = """
import threading
from sidr_rag.rerank import Embedding

began = threading.Event()

def embed(progress, step):
    n = 0
    while step():
        n += 1
        began.set()
        threading.Event().wait(0.01)
    print("ended in order", flush=True)
    return n

job = Embedding(embed)
assert began.wait(30)
{more}
"""


@pytest.mark.parametrize("more", ["", "job.pause()", "del job", "raise SystemExit(3)", "job.close()"])
def test_a_program_that_ends_ends_its_embedding_first(more):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(more=more)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == (3 if "SystemExit" in more else 0), done.stderr
    assert done.stdout == "ended in order\n"
