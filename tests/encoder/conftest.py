import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sidr_rag.encoder.resolve import DEFAULT_FOLDER

GOLDEN_CHECKPOINT = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "checkpoint"

TINY_BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "vocab_size": 1103,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


@pytest.fixture(params=["numpy", "torch"])
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture(scope="session")
def golden_checkpoint():
    if not GOLDEN_CHECKPOINT.is_dir():
        pytest.skip("the golden checkpoint is not on this machine")
    return GOLDEN_CHECKPOINT


@pytest.fixture(scope="session")
def golden_texts():
    path = Path(__file__).resolve().parents[1] / "data" / "golden" / "texts.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def golden_arrays():
    path = Path(__file__).resolve().parents[1] / "data" / "golden" / "expected.npz"
    with np.load(path) as arrays:
        return dict(arrays)


def tiny_weights(seed=0, sizes=TINY_BERT, prefix="bert_model."):
    rng = np.random.default_rng(seed)
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (sizes["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (sizes["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (sizes["type_vocab_size"], hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        for name, (outputs, inputs) in {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
        }.items():
            shapes[f"{layer}.{name}.weight"] = (outputs, inputs)
            shapes[f"{layer}.{name}.bias"] = (outputs,)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    weights = {prefix + name: (rng.normal(size=shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    for name in [*(prefix + norm for norm in norms), "ln"]:
        weights[f"{name}.weight"] = (1 + 0.1 * rng.normal(size=hidden)).astype(np.float32)
        weights[f"{name}.bias"] = (0.1 * rng.normal(size=hidden)).astype(np.float32)
    return weights


def tiny_vocab():
    """[PAD], 99 unused, the special tokens at bert-base-uncased's ids, then words a0..a998 from id 104 on."""
    unused = [f"[unused{i}]" for i in range(99)]
    return ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"a{i}" for i in range(999))]


def write_tokenizer(folder):
    from sidr_rag.encoder.vocabulary_file import tokenizer_json

    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(tiny_vocab()) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer_json(vocab), encoding="utf-8")
    vocab.unlink()


def write_model(folder, weights, **config):
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "name": "tiny",
        "architecture": "bert",
        "head": "layernorm",
        "activation": "elu1p",
        "shared_encoder": True,
        "vocab_offset": 104,
        "max_active_dims": {"query": 8, "passage": 16},
        "max_length": {"query": 16, "passage": 32},
        "bert": TINY_BERT,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    save_file(weights, folder / "model.safetensors")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def tiny_model(tmp_path):
    return write_model(tmp_path / "tiny", tiny_weights())


@pytest.fixture
def make_model(tmp_path):
    """A function (weights, **config) -> folder of a tiny model."""

    def make(weights=None, name="made", **config):
        return write_model(tmp_path / name, tiny_weights() if weights is None else weights, **config)

    return make


@pytest.fixture
def make_weights():
    return tiny_weights


@pytest.fixture
def put_tokenizer():
    return write_tokenizer


@pytest.fixture(scope="session")
def default_folder():
    return DEFAULT_FOLDER
