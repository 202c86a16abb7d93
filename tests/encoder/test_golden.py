"""The authors' own code computed these values; see the README beside the checkpoint."""

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.types import SparseVectors

SIDES = [("q", "queries"), ("p", "passages")]


def golden_vectors(arrays, name):
    return SparseVectors(
        arrays[f"{name}.indptr"].astype(np.int64),
        arrays[f"{name}.indices"].astype(np.int32),
        arrays[f"{name}.data"],
        int(arrays[f"{name}.shape"][1]),
    )


def assert_reproduced(got, expected):
    assert got.dim == expected.dim
    np.testing.assert_array_equal(got.indptr, expected.indptr)
    np.testing.assert_array_equal(got.dims, expected.dims)
    np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-5)


@pytest.fixture
def make_encoder(golden_checkpoint, backend):
    def make(sparsify="union"):
        return load_encoder(
            golden_checkpoint,
            backend=backend,
            device="cpu",
            dtype="float32",
            normalization="none",
            sparsify=sparsify,
        )

    return make


def encode(encoder, kind, texts, **options):
    method = encoder.encode_queries if kind == "queries" else encoder.encode_passages
    return method(texts[kind], **options)


@pytest.mark.parametrize(("prefix", "kind"), SIDES)
@pytest.mark.parametrize(("sparsify", "name"), [("union", "topk_lexical"), ("topk", "topk_only")])
def test_theta(make_encoder, golden_texts, golden_arrays, prefix, kind, sparsify, name):
    got = encode(make_encoder(sparsify), kind, golden_texts)
    assert_reproduced(got, golden_vectors(golden_arrays, f"{prefix}_{name}"))


@pytest.mark.parametrize("options", [{"representation": "lex"}, {"sparsify": "own"}])
def test_lexical(make_encoder, golden_texts, golden_arrays, options):
    encoder = make_encoder(options.get("sparsify", "union"))
    got = encoder.encode_queries(golden_texts["queries"], representation=options.get("representation", "theta"))
    assert_reproduced(got, golden_vectors(golden_arrays, "q_lexical_only"))


@pytest.mark.parametrize(("prefix", "kind"), SIDES)
def test_bag_of_tokens(make_encoder, golden_texts, golden_arrays, prefix, kind):
    got = encode(make_encoder(), kind, golden_texts, representation="bot")
    assert_reproduced(got, golden_vectors(golden_arrays, f"{prefix}_bot"))


def test_scores(make_encoder, golden_texts, golden_arrays):
    encoder = make_encoder()
    queries = encoder.encode_queries(golden_texts["queries"]).toarray().astype(np.float64)
    passages = encoder.encode_passages(golden_texts["passages"]).toarray().astype(np.float64)
    bags = encoder.encode_passages(golden_texts["passages"], representation="bot").toarray()
    np.testing.assert_allclose(queries @ bags.T, golden_arrays["beta_scores"], rtol=1e-4)
    np.testing.assert_allclose(queries @ passages.T, golden_arrays["full_scores"], rtol=1e-4)


def test_one_text_at_a_time_gives_the_same(make_encoder, golden_texts):
    encoder = make_encoder("topk")
    together = encoder.encode_passages(golden_texts["passages"], max_active_dims=encoder.dim)
    for i, text in enumerate(golden_texts["passages"]):
        alone = encoder.encode_passages([text], max_active_dims=encoder.dim)
        np.testing.assert_allclose(alone.weights, together.row(i)[1], rtol=1e-5)
