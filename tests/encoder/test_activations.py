import math

import numpy as np
import pytest

from sidr_rag.encoder.activations import activate, elu1p, gelu_inplace, log1p_relu

X = np.linspace(-12, 12, 20_001, dtype=np.float32)


def test_elu1p_is_the_papers_equation():
    expected = [x + 1 if x >= 0 else math.exp(x) for x in X.tolist()]
    np.testing.assert_allclose(elu1p(X), expected, rtol=1e-6)


def test_elu1p_is_positive_increasing_and_quiet_at_extremes():
    extremes = np.array([-80, -1e-7, 0, 1e-7, 1e30], dtype=np.float32)
    with np.errstate(all="raise"):
        weights = elu1p(extremes)
    assert weights.dtype == np.float32
    assert (weights > 0).all()
    assert (np.diff(weights) >= 0).all()
    assert weights[2] == 1


def test_log1p_relu():
    np.testing.assert_allclose(log1p_relu(X), [math.log1p(max(x, 0)) for x in X.tolist()], rtol=1e-6)


@pytest.mark.parametrize(("name", "function"), [("elu1p", elu1p), ("log1p_relu", log1p_relu)])
def test_activate_by_name(name, function):
    np.testing.assert_array_equal(activate(X, name), function(X))


def test_gelu_is_the_exact_form():
    expected = np.array([x * 0.5 * math.erfc(-x / math.sqrt(2)) for x in X.tolist()])
    error = np.abs(gelu_inplace(X.copy()) - expected)
    assert error.max() < 2e-6
    assert error[np.abs(X) < 3].max() < 6e-7


def test_gelu_overwrites_arrays_of_any_shape():
    x = X[:20_000].reshape(4, 50, 100).copy()
    returned = gelu_inplace(x)
    assert returned is x
    np.testing.assert_array_equal(x.ravel(), gelu_inplace(X[:20_000].copy()))


def test_torch_twins_agree():
    torch = pytest.importorskip("torch")
    from sidr_rag.encoder import torch_bert

    x = torch.from_numpy(X)
    np.testing.assert_allclose(torch_bert.elu1p(x).numpy(), elu1p(X), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(torch_bert.log1p_relu(x).numpy(), log1p_relu(X), rtol=1e-5)
    gelu = torch.nn.functional.gelu(x).numpy()
    np.testing.assert_allclose(gelu_inplace(X.copy()), gelu, atol=2e-6)
