import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

SHARED_MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
SIZES = {
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


def bert_tensors(seed, prefix):
    draw = np.random.default_rng(seed).normal
    hidden, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (SIZES["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (SIZES["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(SIZES["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"{layer}.{part}.weight": (hidden, hidden), f"{layer}.{part}.bias": (hidden,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (inner, hidden), f"{layer}.intermediate.dense.bias": (inner,)}
        shapes |= {f"{layer}.output.dense.weight": (hidden, inner), f"{layer}.output.dense.bias": (hidden,)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    tensors = {prefix + name: (draw(size=shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    for norm in norms:
        tensors[f"{prefix}{norm}.weight"] = (1 + 0.1 * draw(size=hidden)).astype(np.float32)
        tensors[f"{prefix}{norm}.bias"] = (0.1 * draw(size=hidden)).astype(np.float32)
    return tensors


@pytest.fixture
def make_bert(tmp_path):
    """A function (name, seed, prefix, tensors, **config) -> folder of a tiny BERT in Hugging Face's layout."""

    def make(name="all-tiny", *, seed=0, prefix="", tensors=(), **config):
        folder = tmp_path / name
        folder.mkdir()
        described = {"architectures": ["BertModel"], "model_type": "bert", **SIZES, **config}
        (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
        save_file(bert_tensors(seed, prefix) | dict(tensors), folder / "model.safetensors")
        words = [f"a{i}" for i in range(900)]
        special = [*(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        rest = ["query", "passage", ":", "represent", "this", "sentence", "for", "searching", "relevant", "passages"]
        vocab = ["[PAD]", *special, *rest, *words]
        (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
        return folder

    return make


@pytest.fixture
def cross_head():
    """Tensors of a classifier with one output, drawn by a seed."""

    def make(seed=7, outputs=1):
        draw = np.random.default_rng(seed).normal
        hidden = SIZES["hidden_size"]
        return {
            "bert.pooler.dense.weight": draw(size=(hidden, hidden)).astype(np.float32),
            "bert.pooler.dense.bias": draw(size=hidden).astype(np.float32),
            "classifier.weight": draw(size=(outputs, hidden)).astype(np.float32),
            "classifier.bias": draw(size=outputs).astype(np.float32),
        }

    return make


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """A function (name, seed, **config) -> folder of a tiny model in the library's own layout, weights by the seed."""
    folder = tmp_path_factory.mktemp("models")

    def make(name, seed, **config):
        draw = np.random.default_rng(seed).normal
        shapes = {
            "embeddings.word_embeddings.weight": (1103, 16),
            "embeddings.position_embeddings.weight": (64, 16),
            "embeddings.token_type_embeddings.weight": (2, 16),
            "encoder.layer.0.intermediate.dense.weight": (32, 16),
            "encoder.layer.0.intermediate.dense.bias": (32,),
            "encoder.layer.0.output.dense.weight": (16, 32),
            "encoder.layer.0.output.dense.bias": (16,),
        }
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"encoder.layer.0.attention.{part}.weight"] = (16, 16)
            shapes[f"encoder.layer.0.attention.{part}.bias"] = (16,)
        weights = {f"bert_model.{n}": (draw(size=s) * 0.3).astype(np.float32) for n, s in shapes.items()}
        layer = "bert_model.encoder.layer.0"
        for norm in (
            "bert_model.embeddings.LayerNorm",
            f"{layer}.attention.output.LayerNorm",
            f"{layer}.output.LayerNorm",
            "ln",
        ):
            weights |= {f"{norm}.weight": np.ones(16, np.float32), f"{norm}.bias": np.zeros(16, np.float32)}
        path = folder / name
        path.mkdir()
        described = {
            "name": name,
            "vocab_offset": 104,
            "max_active_dims": {"query": 8, "passage": 16},
            "max_length": 32,
            "bert": {
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "max_position_embeddings": 64,
                "vocab_size": 1103,
            },
            **config,
        }
        (path / "config.json").write_text(json.dumps(described), encoding="utf-8")
        save_file(weights, path / "model.safetensors")
        words = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocab = "\n".join([*words, *(f"a{i}" for i in range(999))]) + "\n"
        (path / "vocab.txt").write_text(vocab, encoding="utf-8")
        return path

    return make


@pytest.fixture(params=["numpy", "torch"])
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture
def shared_model():
    def find(name):
        folder = SHARED_MODELS / name
        if not folder.is_dir():
            pytest.skip(f"{name} is not on this machine")
        return folder

    return find
