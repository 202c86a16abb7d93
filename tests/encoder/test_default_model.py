import json
from pathlib import Path

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder

EXPECTED = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "golden" / "default_expected.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def encoders():
    return {}


@pytest.fixture
def default_encoder(encoders, backend):
    if backend not in encoders:
        encoders[backend] = load_encoder(backend=backend, device="cpu", dtype="float32")
    return encoders[backend]


@pytest.mark.parametrize("case", EXPECTED, ids=range(len(EXPECTED)))
def test_stored_vectors_are_reproduced(default_encoder, case):
    ids = default_encoder.tokenizer.sequence_ids(case["query"])
    assert [101, *ids, 102] == case["token_ids"]
    dims, weights = default_encoder.encode_queries([case["query"]]).row(0)
    order = np.argsort(-weights, kind="stable")[: len(case["top_dims"])]
    np.testing.assert_array_equal(dims[order], case["top_dims"])
    np.testing.assert_allclose(weights[order], case["weights"], atol=2e-4)
    assert [default_encoder.tokenizer.vocabulary.token(d) for d in dims[order].tolist()] == case["top_tokens"]


@pytest.mark.parametrize("case", EXPECTED, ids=range(len(EXPECTED)))
def test_stored_vectors_of_binary_queries_are_reproduced(default_encoder, case):
    shown = len(case["binary"]["top_dims"])
    vectors = default_encoder.encode_binary_queries([case["query"]], max_active_dims=shown)
    dims, weights = vectors.row(0)
    order = np.argsort(-weights, kind="stable")[:shown]
    np.testing.assert_array_equal(dims[order], case["binary"]["top_dims"])
    np.testing.assert_allclose(weights[order], case["binary"]["weights"], atol=2e-4)
    assert case["binary"]["weights"] != case["weights"]


@pytest.mark.parametrize("case", EXPECTED, ids=range(len(EXPECTED)))
def test_stored_dense_vectors_are_reproduced(default_encoder, case):
    np.testing.assert_allclose(default_encoder.encode_dense([case["query"]], "query")[0], case["dense"], atol=2e-4)


TEXTS = [
    "x",
    "The general theory of relativity was published in 1915 and describes gravity as the bending of space and time.",
    "refund policy for damaged items",
    "Photosynthesis lets green plants, algae and some bacteria convert light into chemical energy. " * 6,
]


def test_padding_never_changes_a_vector(default_encoder):
    whole = default_encoder.dim
    together = default_encoder.encode_passages(TEXTS, max_active_dims=whole)
    for i, text in enumerate(TEXTS):
        alone = default_encoder.encode_passages([text], max_active_dims=whole)
        np.testing.assert_allclose(alone.weights, together.row(i)[1], rtol=1e-5)


def test_backends_agree():
    pytest.importorskip("torch")
    vectors = [
        load_encoder(backend=name, device="cpu", dtype="float32").encode_passages(TEXTS, max_active_dims=29523)
        for name in ("numpy", "torch")
    ]
    np.testing.assert_allclose(vectors[0].weights, vectors[1].weights, rtol=1e-4)


def test_bfloat16_stays_close():
    pytest.importorskip("torch")
    exact, narrow = (
        load_encoder(backend="torch", device="cpu", dtype=dtype).encode_passages(TEXTS).toarray()
        for dtype in ("float32", "bfloat16")
    )
    cosine = (exact * narrow).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(narrow, axis=1)
    assert cosine.min() > 0.99


def test_a_long_text_is_the_maximum_over_its_windows(default_encoder):
    words = [case["top_tokens"][i] for i in range(24) for case in EXPECTED]
    words = [word for word in words if word.isalpha()]
    text = " ".join((words * 20)[:1000])
    ids = default_encoder.tokenizer.sequence_ids(text)
    assert len(ids) >= 1000
    backbone = default_encoder._backbones.get("passage")
    size = default_encoder.config.max_length.passage - 2
    starts = [*range(0, len(ids) - size, size), len(ids) - size]
    logits = np.max([backbone.pooled_logits([[101, *ids[s : s + size], 102]])[0] for s in starts], axis=0)
    expected = np.where(logits >= 0, logits + 1, np.exp(np.minimum(logits, 0)))
    dims, weights = default_encoder.encode_passages([text], max_active_dims=default_encoder.dim).row(0)
    assert len(dims) == default_encoder.dim
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_its_configuration_carries_the_engines_settings():
    config = load_encoder().config
    assert config.name == "sidr-mini-v3"
    assert config.weighting["levels"] == [1, 2, 4]
    assert config.rerank_blend == pytest.approx(0.45)
    assert (config.max_active_dims["query"], config.max_active_dims["passage"]) == (64, 256)
    assert config.binary_active_dims == 8
    assert config.binary_layers == 1
    assert config.dense is not None
    assert config.reranker == "all"


def test_limits_of_the_sides(default_encoder):
    text = TEXTS[1]
    own = default_encoder.own_dims([text])[0]
    query, passage = default_encoder.encode_queries([text]), default_encoder.encode_passages([text])
    assert 64 <= len(query.dims) <= 64 + len(own)
    assert 256 <= len(passage.dims) <= 256 + len(own)
    assert set(own.tolist()) <= set(query.dims.tolist())


def test_a_licence_and_a_model_card_ship_with_it(default_folder):
    card = (default_folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Apache" in card
    assert "non-commercial" in card
    assert "Apache License" in (default_folder / "LICENSE").read_text(encoding="utf-8")
