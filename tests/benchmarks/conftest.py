import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def _texts(vocabulary, n, seed):
    """Texts of 60 words, some words far more frequent than others."""
    draw = random.Random(seed)
    words = [w for w in map(vocabulary.token, range(0, vocabulary.dim, 7)) if w.isascii() and w.isalpha()]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(draw.choices(words, weights, k=60)) for _ in range(n)]


@pytest.fixture(scope="session")
def bench_corpus(tokenizer, tmp_path_factory):
    """A prepared corpus of 400 made-up passages; no shared data is needed."""
    from benchmarks import corpora

    def questions(n):
        return [f"Which {text[:40]}?" for text in _texts(tokenizer.vocabulary, n, 2)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "few_passages", lambda n: _texts(tokenizer.vocabulary, n, 1))
        patch.setattr(corpora, "few_questions", questions)
        return corpora.prepare(tmp_path_factory.mktemp("bench"), 400, small=True)
