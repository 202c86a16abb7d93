import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.checkpoint import checkpoint_digest, load_weights
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError, MissingExtraError, ModelNotFoundError

QUERY = "embeddings.word_embeddings.weight"


def read(folder, side="query"):
    return load_weights(folder, load_config(folder), side)


def test_float_weights_come_back_as_they_were(make_model, make_weights):
    weights = make_weights()
    read_back = read(make_model(weights))
    assert len(read_back) == len(weights)
    for name, array in weights.items():
        got = read_back[name.removeprefix("bert_model.")]
        assert got.dtype == np.float32
        assert got.flags.c_contiguous
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int8"])
def test_narrow_types_are_widened(make_model, make_weights, kind):
    weights = make_weights()
    name = f"bert_model.{QUERY}"
    original = weights[name]
    folder = make_model(weights)
    if kind == "bfloat16":
        torch = pytest.importorskip("torch")
        from safetensors.torch import save_file as save_tensors

        tensors = {key: torch.from_numpy(value) for key, value in weights.items()}
        tensors[name] = tensors[name].bfloat16()
        save_tensors(tensors, folder / "model.safetensors")
        expected = tensors[name].float().numpy()
    elif kind == "float16":
        expected = original.astype(np.float16).astype(np.float32)
        save_file({**weights, name: original.astype(np.float16)}, folder / "model.safetensors")
    else:
        scale = (np.abs(original).max(axis=1) / 127).astype(np.float32)
        quantized = np.round(original / scale[:, None]).astype(np.int8)
        expected = quantized.astype(np.float32) * scale[:, None]
        save_file({**weights, name: quantized, f"{name}.scale": scale}, folder / "model.safetensors")
    np.testing.assert_array_equal(read(folder)[QUERY], expected)
    np.testing.assert_allclose(expected, original, atol=0.02)


@pytest.mark.parametrize("kept", ["encoder_q.", "encoder_p."])
def test_a_shared_encoder_may_stand_under_either_name(make_model, make_weights, kept):
    folder = make_model(make_weights(), shared_encoder=True)
    save_file({kept + name: array for name, array in make_weights().items()}, folder / "model.safetensors")
    for side in ("query", "passage"):
        np.testing.assert_array_equal(read(folder, side)[QUERY], make_weights()[f"bert_model.{QUERY}"])


def test_two_encoders_are_told_apart(make_model, make_weights, backend):
    both = {f"encoder_{side}.{name}": a for i, side in enumerate("qp") for name, a in make_weights(i).items()}
    folder = make_model(both, shared_encoder=False)
    encoder = load_encoder(folder, backend=backend, device="cpu", dtype="float32")
    query, passage = encoder.encode_queries(["a1 a2"]), encoder.encode_passages(["a1 a2"], max_active_dims=8)
    assert not np.array_equal(query.weights, passage.weights)
    alone = load_encoder(make_model(make_weights(1), name="second"), backend=backend, device="cpu", dtype="float32")
    np.testing.assert_array_equal(alone.encode_queries(["a1 a2"]).weights, passage.weights)


def test_old_names_of_layer_norms(make_model, make_weights):
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in make_weights().items()
    }
    np.testing.assert_array_equal(
        read(make_model(renamed))["embeddings.LayerNorm.weight"],
        make_weights()["bert_model.embeddings.LayerNorm.weight"],
    )


def test_logit_bias_is_added_before_the_activation(make_model, make_weights, backend):
    plain = load_encoder(make_model(), backend=backend, device="cpu", dtype="float32", sparsify="topk")
    biased_weights = {**make_weights(), "logit_bias": np.array([2.5], dtype=np.float32)}
    folder = make_model(biased_weights, name="biased")
    biased = load_encoder(folder, backend=backend, device="cpu", dtype="float32", sparsify="topk")
    before, after = plain.encode_queries(["a5 a6"]), biased.encode_queries(["a5 a6"])
    assert (before.weights > 1).all(), "the top logits are positive, so elu1p is x + 1 on both sides"
    np.testing.assert_array_equal(before.dims, after.dims)
    np.testing.assert_allclose(after.weights, before.weights + 2.5, rtol=1e-6)


def test_sharded_safetensors(make_model, make_weights):
    folder = make_model()
    weights = make_weights()
    names = sorted(weights)
    shards = {"model-1-of-2.safetensors": names[:10], "model-2-of-2.safetensors": names[10:]}
    (folder / "model.safetensors").unlink()
    for shard, members in shards.items():
        save_file({name: weights[name] for name in members}, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {n: s for s, m in shards.items() for n in m}}), encoding="utf-8")
    np.testing.assert_array_equal(read(folder)["ln.weight"], weights["ln.weight"])
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="model-2-of-2"):
        read(folder)
    index.write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}), encoding="utf-8")
    with pytest.raises(ModelNotFoundError):
        read(folder)


def test_bin_files_are_read_without_running_anything(make_model, make_weights, tmp_path):
    torch = pytest.importorskip("torch")
    folder = make_model()
    (folder / "model.safetensors").unlink()
    torch.save({n: torch.from_numpy(a) for n, a in make_weights().items()}, folder / "pytorch_model.bin")
    np.testing.assert_array_equal(read(folder)["ln.weight"], make_weights()["ln.weight"])

    marker = tmp_path / "ran"

    class Hostile:
        def __reduce__(self):
            return (type(marker).touch, (marker,))

    torch.save({"ln.weight": Hostile()}, folder / "pytorch_model.bin")
    with pytest.raises(InvalidInputError, match="no file of plain tensors"):
        read(folder)
    assert not marker.exists()


def test_a_bin_file_needs_torch(make_model, monkeypatch):
    folder = make_model()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"sidr-rag\[torch\]"):
        read(folder)


BROKEN = {
    "missing": (lambda w: w.pop("bert_model.encoder.layer.1.output.dense.weight"), "layer.1.output.dense.weight"),
    "shape": (lambda w: w.update({"ln.bias": np.zeros(3, np.float32)}), r"'ln\.bias'.*\(3,\).*\(16,\)"),
    "type": (lambda w: w.update({"ln.bias": np.zeros(16, np.int32)}), r"'ln\.bias'.*int32"),
    "scale absent": (
        lambda w: w.update({f"bert_model.{QUERY}": np.zeros((1103, 16), np.int8)}),
        r"lacks 'bert_model\..*\.scale'",
    ),
    "scale shape": (
        lambda w: w.update(
            {f"bert_model.{QUERY}": np.zeros((1103, 16), np.int8), f"bert_model.{QUERY}.scale": np.ones(4, np.float32)}
        ),
        r"\.scale'.*\(4,\)",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_checkpoints_name_file_and_tensor(make_model, make_weights, fault):
    weights = make_weights()
    breaking, words = BROKEN[fault]
    breaking(weights)
    folder = make_model(weights)
    encoder = load_encoder(folder, backend="numpy")
    with pytest.raises(InvalidInputError, match=words) as caught:
        encoder.encode_queries(["a1"])
    assert "model.safetensors" in str(caught.value)


def test_a_file_that_is_no_safetensors(tiny_model):
    whole = (tiny_model / "model.safetensors").read_bytes()
    for damaged in (b"", b"not weights at all", whole[: len(whole) // 2]):
        (tiny_model / "model.safetensors").write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=r"model\.safetensors is no readable"):
            read(tiny_model)


def test_weights_that_give_no_numbers(make_model, make_weights, backend):
    weights = make_weights()
    weights["ln.weight"][3] = np.nan
    encoder = load_encoder(make_model(weights), backend=backend, device="cpu", dtype="float32")
    with pytest.raises(InvalidInputError, match="not all finite"):
        encoder.encode_queries(["a1"])


def test_a_folder_without_weights(tiny_model):
    (tiny_model / "model.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match="holds no weights"):
        load_encoder(tiny_model)


def test_a_side_that_is_absent(make_model, make_weights):
    folder = make_model({f"encoder_q.{n}": a for n, a in make_weights().items()}, shared_encoder=False)
    with pytest.raises(InvalidInputError, match=r"passage encoder \(encoder_p"):
        read(folder, "passage")


def test_the_digest_follows_the_bytes(make_model, make_weights):
    first, again = make_model(name="a"), make_model(name="b")
    assert checkpoint_digest(first) == checkpoint_digest(again)
    assert checkpoint_digest(make_model(make_weights(1), name="c")) != checkpoint_digest(first)
