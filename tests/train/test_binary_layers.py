"""Training the layers that queries of binary beta search have for themselves: nothing else of the model changes."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.checkpoint import load_weights
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError
from sidr_rag.train import train
from sidr_rag.train.average import average_models
from sidr_rag.train.binary_layers import binary_state, is_own
from sidr_rag.train.tune import tune

QUERIES = ["a0 a1 a610", "a3 a4", "a6 a8 a640"]


def silent(_):
    pass


@pytest.fixture
def base(tiny_config):
    """A model with both heads, by a short run."""
    terms = {"weighted": {}, "query_bot": {}, "dense": {}}
    steps = {"total": 4, "beta_batch": 16, "full_batch": 8, "beta_per_full": 1}
    return train(tiny_config(terms=terms, steps=steps), show=silent)


@pytest.fixture
def layer_config(tiny_config, base, tmp_path):
    def make(name="layer", **settings):
        given = {
            "name": "with a layer",
            "base": str(base),
            "output": str(tmp_path / name),
            "model": {"binary_layers": 1},
            "terms": {"query_bot": {}},
            "steps": {"total": 150, "beta_batch": 32, "active_dims": 48},
            "optimizer": {"learning_rate": 1e-2, "warmup": 5, "average": 0.9},
        }
        return tiny_config(**(given | settings))

    return make


def test_the_layer_learns_and_nothing_else_changes(layer_config, base, tmp_path):
    config = layer_config()
    folder = train(config, show=silent)
    before, after = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    assert before.keys() == {name for name in after if not name.startswith("binary.")}
    for name, value in before.items():
        assert value.dtype == after[name].dtype
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    added = {name.removeprefix("binary.").removesuffix(".scale") for name in after.keys() - before.keys()}
    assert {"ln.weight", "ln.bias", "logit_bias", "encoder.layer.1.output.dense.weight"} <= added
    assert all(is_own(name, 2, 1) for name in added)
    described, old = (json.loads((f / "config.json").read_text(encoding="utf-8")) for f in (folder, base))
    assert described == old | {"name": "with a layer", "binary_layers": 1}
    log = [json.loads(line) for line in (tmp_path / "layer" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [entry["loss_query_bot"] for entry in log if entry["event"] == "step"]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
    trained, untrained = load_encoder(folder, backend="numpy"), load_encoder(base, backend="numpy")
    assert (trained.encode_queries(QUERIES).weights == untrained.encode_queries(QUERIES).weights).all()
    assert (trained.encode_dense(QUERIES) == untrained.encode_dense(QUERIES)).all()
    binary, plain = trained.encode_binary_queries(QUERIES), untrained.encode_binary_queries(QUERIES)
    assert binary.weights.tolist() != plain.weights.tolist()


def test_a_run_that_was_stopped_ends_in_the_same_weights(layer_config):
    whole = train(layer_config("whole", steps={"total": 6, "beta_batch": 8}), show=silent)
    config = layer_config("halves", steps={"total": 6, "beta_batch": 8})
    train(config, steps=3, show=silent)
    halves = train(config, show=silent)
    one, other = load_file(whole / "model.safetensors"), load_file(halves / "model.safetensors")
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_a_further_run_goes_on_from_its_layers(layer_config, tmp_path):
    first = train(layer_config("first"), show=silent)
    few = {"total": 1, "beta_batch": 8}
    slow = {"learning_rate": 1e-9, "warmup": 1}
    again = train(layer_config("again", base=str(first), steps=few, optimizer=slow), show=silent)
    one, other = (load_encoder(f, backend="numpy").encode_binary_queries(QUERIES) for f in (first, again))
    assert one.dims.tolist() == other.dims.tolist()
    np.testing.assert_allclose(one.weights, other.weights, rtol=0.02)


def test_a_run_with_fewer_layers_trains_over_the_shared_ones_that_its_model_will_have(layer_config):
    """Of a base with two layers of its own, a run for one takes the last: the other is not in what it writes."""
    first = train(layer_config("two", model={"binary_layers": 2}), show=silent)
    shared, own, cut = (
        load_weights(first, load_config(first), "query"),
        binary_state(first),
        binary_state(first, 1),
    )
    lower, upper = "encoder.layer.0.output.dense.weight", "encoder.layer.1.output.dense.weight"
    assert not np.array_equal(own[lower], shared[lower])
    np.testing.assert_array_equal(cut[lower], shared[lower])
    np.testing.assert_array_equal(cut[upper], own[upper])
    few = {"steps": {"total": 1, "beta_batch": 8}, "optimizer": {"learning_rate": 1e-9, "warmup": 1}}
    again = train(layer_config("one", base=str(first), **few), show=silent)
    for name, value in binary_state(again).items():
        np.testing.assert_allclose(value, cut[name], atol=0.02 * np.abs(cut[name]).max() + 1e-6, err_msg=name)


def test_dev_sets_choose_by_binary_search_and_tune_reads_by_the_layers(layer_config, tmp_path, put_jsonl, make_pairs):
    dev = put_jsonl(tmp_path / "dev.jsonl", make_pairs(20, 1, seed=9))
    sets = {"sets": [{"path": str(dev)}], "choose": "binary", "every": 50}
    config = layer_config(dev=sets)
    folder = train(config, show=silent)
    log = [json.loads(line) for line in (tmp_path / "layer" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = [entry["scores"]["binary"]["dev"] for entry in log if entry["event"] == "dev"]
    assert all(entry["scores"].keys() == {"binary"} for entry in log if entry["event"] == "dev")
    assert max(scores) > scores[0]
    given = {"active_dims": (16,), "binary_dims": (), "candidates": 0, "write": False, "show": silent}
    with_layers = tune(folder, config.dev, **given)
    without = tune(config.base, config.dev, **given)
    assert with_layers.binary == pytest.approx(max(scores), abs=0.06)  # weights of the file are rounded
    assert with_layers.binary > without.binary
    assert with_layers.first_stage == without.first_stage


def test_what_changes_the_rest_leaves_the_layers_out(layer_config, tmp_path, tiny_config):
    folder = train(layer_config(steps={"total": 1, "beta_batch": 8}), show=silent)
    more = {"base": str(folder), "output": str(tmp_path / "more"), "steps": {"total": 1, "beta_batch": 8}}
    after = train(tiny_config(**more, terms={"query_bot": {}}), show=silent)
    assert load_config(after).binary_layers == 0
    assert not any(name.startswith("binary.") for name in load_file(after / "model.safetensors"))


def test_layers_over_one_model_can_be_averaged(layer_config, base, tmp_path):
    few = {"steps": {"total": 4, "beta_batch": 8}}
    one, other = (train(layer_config(f"seed{seed}", seed=seed, **few), show=silent) for seed in (1, 2))
    average_models([one, other], tmp_path / "mean")
    before, after = load_file(base / "model.safetensors"), load_file(tmp_path / "mean" / "model.safetensors")
    assert all(np.array_equal(value, after[name]) for name, value in before.items())
    assert load_config(tmp_path / "mean") == load_config(one)
    parts = [load_file(folder / "model.safetensors")["binary.ln.weight"] for folder in (one, other)]
    assert not np.array_equal(*parts)
    np.testing.assert_allclose(after["binary.ln.weight"], np.mean(parts, axis=0), rtol=1e-6)


def test_layers_over_other_weights_cannot_be_averaged(layer_config, base, tmp_path, tiny_config):
    few = {"steps": {"total": 1, "beta_batch": 8}}
    one = train(layer_config(**few), show=silent)
    more = {"base": str(base), "output": str(tmp_path / "more"), **few}
    changed = train(tiny_config(**more, terms={"query_bot": {}, "dense": {}}), show=silent)
    two = train(layer_config("two", base=str(changed), **few), show=silent)
    for models, named in (([one, base], "differs"), ([one, two], "belong to other weights")):
        with pytest.raises(InvalidInputError, match=named):
            average_models(models, tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"terms": {"query_bot": {}, "weighted": {}}}, "query_bot, weighted"),
        ({"terms": {"dense": {}}, "steps": {"total": 1, "beta_per_full": 0}}, "has dense"),
        ({"distillation": {"cache": "x", "anchor": 1.0}}, r"distillation\.anchor"),
        ({"dev": {"sets": [{"path": "x"}]}}, "must be 'binary'"),
        ({"model": {"binary_layers": -1}}, r"model\.binary_layers is -1"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(layer_config, settings, named):
    with pytest.raises(InvalidInputError, match=named):
        layer_config(**settings)


def test_a_base_must_have_so_many_layers_and_be_one_of_ours(layer_config, tiny_base):
    with pytest.raises(InvalidInputError, match="binary_layers is 3; the model has 2"):
        train(layer_config(model={"binary_layers": 3}), show=silent)
    described = json.loads((tiny_base / "config.json").read_text(encoding="utf-8"))
    assert "binary_layers" not in described
