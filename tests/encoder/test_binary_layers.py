"""A model whose queries of binary beta search have last layers of their own."""

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError

TEXTS = ["a1 a2 a3", "a4", "", "a5 a6 a5 a7 a8 a9 a10 a11", " ".join(f"a{i}" for i in range(40))]
HEAD = ("ln.weight", "ln.bias")


def own(weights, other, layers, names=HEAD):
    """Weights of one model, with the last of its two layers, and its head, of another one beside them."""
    first = 2 - layers
    chosen = {
        name.removeprefix("bert_model."): value
        for name, value in other.items()
        if name in names or any(f"encoder.layer.{i}." in name for i in range(first, 2))
    }
    return weights | {f"binary.{name}": value for name, value in chosen.items()}


@pytest.fixture(params=[1, 2])
def layers(request):
    return request.param


@pytest.fixture
def models(make_model, make_weights, layers):
    """The same model without such layers, with them, and one that has them in the place of its own."""
    weights, other = make_weights(0), make_weights(7)
    with_own = own(weights, other, layers)
    replaced = weights | {
        (f"bert_model.{n}" if n.startswith("encoder.") else n): v
        for n, v in ((n.removeprefix("binary."), v) for n, v in with_own.items() if n.startswith("binary."))
    }
    assert not np.array_equal(replaced["ln.bias"], weights["ln.bias"])
    return (
        make_model(weights, "plain", dense={}),
        make_model(with_own, "own", dense={}, binary_layers=layers),
        make_model(replaced, "replaced", dense={}),
    )


def assert_same(one, other):
    assert one.dims.tolist() == other.dims.tolist()
    assert one.indptr.tolist() == other.indptr.tolist()
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)


def test_binary_queries_are_read_by_them_and_all_else_is_not(models, backend):
    plain, with_own, replaced = (load_encoder(m, backend=backend, device="cpu", dtype="float32") for m in models)
    assert_same(with_own.encode_binary_queries(TEXTS), replaced.encode_queries(TEXTS))
    assert_same(with_own.encode_queries(TEXTS), plain.encode_queries(TEXTS))
    assert_same(with_own.encode_passages(TEXTS), plain.encode_passages(TEXTS))
    assert not np.array_equal(with_own.encode_binary_queries(TEXTS).weights, with_own.encode_queries(TEXTS).weights)


@pytest.mark.parametrize("representation", ["theta", "lex", "bin", "bot"])
def test_every_representation_is_of_them(models, representation):
    _, with_own, replaced = (load_encoder(m, backend="numpy") for m in models)
    given = {"representation": representation, "max_active_dims": 3}
    assert_same(with_own.encode_binary_queries(TEXTS, **given), replaced.encode_queries(TEXTS, **given))


def test_no_vector_of_the_dense_head_comes_from_them(models, backend):
    plain, with_own, _ = (load_encoder(m, backend=backend, device="cpu", dtype="float32") for m in models)
    with_own.encode_binary_queries(TEXTS)
    np.testing.assert_allclose(
        with_own.encode_dense(TEXTS, "query"), plain.encode_dense(TEXTS, "query"), rtol=1e-5, atol=1e-6
    )
    for one, other in zip(with_own.encode_tokens(TEXTS, "query"), plain.encode_tokens(TEXTS, "query"), strict=True):
        np.testing.assert_allclose(one.vectors, other.vectors, rtol=1e-4, atol=1e-5)


def test_a_bias_of_their_own(make_model, make_weights):
    weights = own(make_weights(0), make_weights(7), 1) | {"logit_bias": np.float32([-1.0])}
    shared = load_encoder(make_model(weights, "shared", binary_layers=1), backend="numpy", sparsify="own")
    lower = weights | {"binary.logit_bias": np.float32([-2.0])}
    alone = load_encoder(make_model(lower, "alone", binary_layers=1), backend="numpy", sparsify="own")
    assert_same(shared.encode_queries(TEXTS), alone.encode_queries(TEXTS))
    assert (alone.encode_binary_queries(TEXTS).weights < shared.encode_binary_queries(TEXTS).weights).all()


def test_each_side_its_own_weights(make_model, make_weights):
    sides = own(make_weights(0, prefix="bert_model."), make_weights(7), 1)
    weights = {f"encoder_q.{n}": v for n, v in sides.items()}
    weights |= {f"encoder_p.{n}": v for n, v in make_weights(3).items()}
    encoder = load_encoder(make_model(weights, shared_encoder=False, binary_layers=1), backend="numpy")
    together = load_encoder(make_model(sides, "together", binary_layers=1), backend="numpy")
    assert_same(encoder.encode_binary_queries(TEXTS), together.encode_binary_queries(TEXTS))
    assert_same(
        encoder.encode_passages(TEXTS), load_encoder(make_model(make_weights(3), "third")).encode_passages(TEXTS)
    )


def test_missing_ones_are_named(make_model, make_weights):
    weights = own(make_weights(0), make_weights(7), 1)
    del weights["binary.encoder.layer.1.output.dense.weight"]
    encoder = load_encoder(make_model(weights, binary_layers=1), backend="numpy")
    with pytest.raises(InvalidInputError, match=r"lacks the tensor 'binary\.encoder\.layer\.1\.output\.dense\.weight'"):
        encoder.encode_binary_queries(TEXTS)


@pytest.mark.parametrize("given", [3, -1, 1.0, True, "1"])
def test_a_number_that_cannot_be(make_model, given):
    with pytest.raises(InvalidInputError, match="'binary_layers' is "):
        load_encoder(make_model(binary_layers=given))
