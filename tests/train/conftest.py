import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

TESTS = Path(__file__).resolve().parents[1]
SHARED = TESTS.parent.parent / "shared"


def _tiny_models():
    # The encoder's tests know how to write a tiny model; with importlib imports they are on no path.
    spec = importlib.util.spec_from_file_location("encoder_conftest", TESTS / "encoder" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny_models = _tiny_models()


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def word(number):
    return f"a{number}"


def topic_pairs(n_topics=40, per_topic=4, seed=0):
    """Pairs in which a query names a topic by words that its passages do not hold: something must be learned.

    Topic t has query words 3t..3t+2 and passage words 200+6t..200+6t+5; words from 600 on are noise.
    """
    rng = np.random.default_rng(seed)
    pairs = []
    for topic in range(n_topics):
        for _ in range(per_topic):
            query = [word(3 * topic + i) for i in rng.permutation(3)[:2]] + [word(600 + rng.integers(50))]
            said = [word(200 + 6 * topic + i) for i in rng.permutation(6)[:4] for _ in range(1 + i % 2)]
            text = said + [word(600 + i) for i in rng.integers(0, 390, size=8)]
            pairs.append({"query": " ".join(query), "title": word(999 - 1 - topic % 3), "text": " ".join(text)})
    return pairs


def write_jsonl(path, records):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return path


@pytest.fixture
def put_jsonl():
    return write_jsonl


@pytest.fixture
def make_pairs():
    return topic_pairs


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory):
    """A tiny model in the library's own format, weights small so that nothing is saturated."""
    weights = {k: v * 0.5 for k, v in tiny_models.tiny_weights().items() if not k.startswith("ln.")}
    weights |= {k: v for k, v in tiny_models.tiny_weights().items() if k.startswith("ln.")}
    return tiny_models.write_model(tmp_path_factory.mktemp("base") / "tiny", weights)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_base):
    from sidr_rag.text.tokenizer import BagTokenizer

    return BagTokenizer.from_file(tiny_base / "tokenizer.json", vocab_offset=104)


@pytest.fixture
def tiny_config(tiny_base, tmp_path):
    """A function (**changes) -> TrainConfig over topic pairs, the settings as YAML would give them."""
    from sidr_rag.train.config import TrainConfig
    from sidr_rag.train.settings import build

    source = write_jsonl(tmp_path / "topics.jsonl.gz", topic_pairs())

    def make(**changes):
        values = {
            "name": "tiny",
            "base": str(tiny_base),
            "output": str(tmp_path / "run"),
            "seed": 3,
            "dtype": "float32",
            "threads": 1,
            "model": {
                "dropout": 0.1,
                "max_active_dims": {"query": 24, "passage": 48},
                "max_length": {"query": 16, "passage": 32},
            },
            "data": {"sources": [{"path": str(source)}], "title_dropout": 0.5, "one_source": 0.5},
            "steps": {"total": 12, "beta_batch": 16, "full_batch": 8, "beta_per_full": 2, "active_dims": 48},
            "terms": {
                "weighted": {},
                "query_bot": {"weight": 0.5},
                "full": {"weight": 0.5},
                "bot_passage": {"weight": 0.25},
                "dense": {"weight": 0.5, "temperature": 0.1},
            },
            "retrieval": {"m": 5, "bags": 5, "random_bags": 64},
            "optimizer": {"learning_rate": 1.0e-3, "warmup": 2, "average": 0.9},
            "checkpoint_every": 4,
            "show_every": 4,
            "examples_every": 6,
            **changes,
        }
        return build(TrainConfig, values)

    return make


@pytest.fixture(scope="session")
def shared_models():
    folder = SHARED / "models"
    if not folder.is_dir():
        pytest.skip("the shared models are not on this machine")
    return folder


@pytest.fixture(scope="session")
def shared_data():
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the shared data is not on this machine")
    return folder
