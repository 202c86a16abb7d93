import json

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.config import DenseHead
from sidr_rag.encoder.recent import RecentVectors
from sidr_rag.encoder.windows import dense_vectors
from sidr_rag.errors import InvalidInputError

TEXTS = ["a1 a2 a3", "a4", "", "a5 a6 a5 a7 a8 a9 a10 a11"]


def test_the_vectors_are_means_of_the_last_states(make_model, backend):
    encoder = load_encoder(make_model(dense={"pooling": "mean", "normalize": True}), backend=backend, device="cpu")
    assert encoder.config.dense == DenseHead("mean", True)
    vectors = encoder.encode_dense(TEXTS)
    assert vectors.shape == (4, 16)
    assert encoder.dense_width == 16
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    body = load_encoder(make_model(name="again"), backend="numpy")._backbones.get_body("passage")
    ids = [101, *encoder.tokenizer.sequence_ids(TEXTS[0]), 102]
    states = body.states([ids])[:, : len(ids)]
    mean = states.mean(axis=1)
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-6)


def test_a_vector_does_not_depend_on_its_neighbours(make_model, backend):
    encoder = load_encoder(make_model(dense={}), backend=backend, device="cpu")
    together = encoder.encode_dense(TEXTS)
    for i, text in enumerate(TEXTS):
        np.testing.assert_allclose(encoder.encode_dense([text])[0], together[i], rtol=1e-5, atol=1e-6)
    assert encoder.encode_dense([]).shape == (0, 16)


def test_both_backends_agree(make_model):
    pytest.importorskip("torch")
    folder = make_model(dense={"pooling": "cls", "normalize": False})
    a, b = (
        load_encoder(folder, backend=name, device="cpu").encode_dense(TEXTS, "query") for name in ("numpy", "torch")
    )
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_long_text_is_the_mean_of_its_windows_by_length(make_model):
    encoder = load_encoder(make_model(dense={"normalize": False}), backend="numpy")
    ids = encoder.tokenizer.sequence_ids(" ".join(f"a{i}" for i in range(75)))
    parts = [[101, *ids[s : s + 30], 102] for s in (0, 30, 45)]  # the last one ends at the text's end
    body = encoder._backbones.get_body("passage")
    each = np.stack([body.summaries([part], "mean")[0] for part in parts])
    expected = each.mean(axis=0)
    np.testing.assert_allclose(encoder.encode_dense([" ".join(f"a{i}" for i in range(75))])[0], expected, rtol=1e-4)
    weighed = dense_vectors([(0, parts[0]), (0, parts[1][:10])], 1, body, DenseHead("mean", False))
    short = body.summaries([parts[1][:10]], "mean")[0]
    np.testing.assert_allclose(weighed[0], (each[0] * 32 + short * 10) / 42, rtol=1e-4)


def test_fingerprints_tell_heads_apart_and_leave_theta_alone(make_model):
    plain = load_encoder(make_model(name="plain"))
    mean = load_encoder(make_model(name="mean", dense={}))
    cls = load_encoder(make_model(name="cls", dense={"pooling": "cls"}))
    assert plain.fingerprint == mean.fingerprint == cls.fingerprint
    assert len({mean.dense_fingerprint, cls.dense_fingerprint, mean.fingerprint}) == 3


def test_a_model_without_the_head_says_so(tiny_model):
    encoder = load_encoder(tiny_model)
    assert encoder.dense_width == 0
    with pytest.raises(InvalidInputError, match="dense head"):
        encoder.encode_dense(["a1"])


@pytest.mark.parametrize("head", [[], {"pooling": "max"}, {"normalize": "yes"}])
def test_a_malformed_head_is_refused_by_name(make_model, head):
    folder = make_model(dense=head)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["dense"] == head
    with pytest.raises(InvalidInputError, match=r"dense|pooling|normalize"):
        load_encoder(folder)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_text_is_read_once_for_both_heads(make_model, backend, pooling, monkeypatch):
    folder = make_model(dense={"pooling": pooling})
    long = " ".join(f"a{i}" for i in range(75))
    texts = [*TEXTS, long, TEXTS[0]]
    alone = load_encoder(folder, backend=backend, device="cpu").encode_dense(texts)
    encoder = load_encoder(folder, backend=backend, device="cpu")
    plain = load_encoder(make_model(name="one head"), backend=backend, device="cpu")
    np.testing.assert_array_equal(encoder.encode_passages(texts).toarray(), plain.encode_passages(texts).toarray())
    body = encoder._backbones.get_body("passage")
    read = []
    summaries = type(body).summaries

    def counted(self, sequences, *arguments):
        read.extend(sequences)
        return summaries(self, sequences, *arguments)

    monkeypatch.setattr(type(body), "summaries", counted)
    np.testing.assert_allclose(encoder.encode_dense(texts), alone, rtol=1e-4, atol=1e-6)
    assert read == [[101, 102]], "only the empty text, which has no V_theta, is read for its dense vector"
    read.clear()
    encoder.encode_passages(TEXTS[:1])
    encoder.encode_dense(TEXTS[:1], "query")
    assert len(read) == 1, "the other side is another vector"
    encoder.encode_dense(TEXTS[:1])
    assert len(read) == 1
    encoder.encode_dense(TEXTS[:1])
    assert len(read) == 2, "what came along is given once"


def test_few_vectors_are_kept():
    recent = RecentVectors(3)
    recent.put("query", [[1], [2]], np.array([[1], [2]], np.float32))
    recent.put("query", [[1], [3], [4]], np.array([[10], [3], [4]], np.float32))
    found = recent.take("query", [[1], [2], [3], [4], [1]])
    assert [None if v is None else float(v[0]) for v in found] == [10, None, 3, 4, 10]
    assert recent.take("query", [[1]]) == [None]
