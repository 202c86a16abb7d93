from dataclasses import replace

import numpy as np
import pytest

from sidr_rag.cli import main
from sidr_rag.encoder.checkpoint import load_weights
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError
from sidr_rag.train.average import average_models
from sidr_rag.train.weights_io import save_model


def weights_of(folder, side="query"):
    return load_weights(folder, load_config(folder), side)


DENSE = {"pooling": "mean", "normalize": True}


@pytest.fixture
def other(tiny_base, tmp_path):
    """A function (scale, **config) -> folder of the tiny model with its weights scaled."""

    def make(scale, **config):
        folder = tmp_path / f"by{scale}"
        weights = {name: value * np.float32(scale) for name, value in weights_of(tiny_base).items()}
        shaped = replace(load_config(tiny_base), dense=None, **config)
        sides = ("query",) if shaped.shared_encoder else ("query", "passage")
        dense = "rerank_blend" in config
        blend = config.get("rerank_blend")
        own = {"dense": dense, "rerank_blend": blend, "reranker": "all" if dense else None}
        save_model(folder, dict.fromkeys(sides, weights), shaped, tiny_base, **own)
        return folder

    return make


@pytest.mark.parametrize("shared", [True, False])
def test_weights_lie_between_and_the_rest_is_the_first_ones(other, tmp_path, shared):
    one, two = (other(scale, rerank_blend=scale / 4, shared_encoder=shared) for scale in (1, 3))
    average_models([one, two], tmp_path / "mean")
    assert load_config(tmp_path / "mean") == load_config(one)
    for side in ("query", "passage"):
        first, mean = weights_of(one, side), weights_of(tmp_path / "mean", side)
        assert mean.keys() - {"logit_bias"} == first.keys() - {"logit_bias"}
        for name in first:
            step = 2 * np.abs(first[name]).max() / 127
            np.testing.assert_allclose(mean[name], 2 * first[name], atol=step, err_msg=name)


def test_only_models_of_one_shape_can_be_averaged(other, tmp_path):
    one, two = other(1), other(2, rerank_blend=0.5)
    for models, named in (([one], "at least two"), ([one, two], "differs")):
        with pytest.raises(InvalidInputError, match=named):
            average_models(models, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_by_the_command(other, tmp_path, capsys):
    assert main(["average", str(other(1)), str(other(2)), "-o", str(tmp_path / "mean")]) == 0
    assert str(tmp_path / "mean") in capsys.readouterr().out
    assert weights_of(tmp_path / "mean").keys() >= weights_of(tmp_path / "by1").keys()
