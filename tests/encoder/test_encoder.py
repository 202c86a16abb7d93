import pickle
import threading

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.backbones import Backbones
from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError

TEXTS = ["a1 a2 a2 a3", "", "zzz", "a10 a11", "a5"]


@pytest.fixture
def encoder(tiny_model, backend):
    return load_encoder(tiny_model, backend=backend, device="cpu", dtype="float32")


def whole(encoder, texts):
    return encoder.encode_passages(texts, max_active_dims=encoder.dim).toarray()


def test_loading_is_lazy(tiny_model, monkeypatch):
    def refuse(*args):
        raise AssertionError("weights were read")

    monkeypatch.setattr("sidr_rag.encoder.backbones.load_weights", refuse)
    encoder = load_encoder(tiny_model)
    assert encoder.dim == 999
    assert encoder.fingerprint
    bags = encoder.encode_passages(TEXTS, representation="bot")
    np.testing.assert_array_equal(bags.row(0)[0], [1, 2, 3])
    encoder.encode_queries(["", "zzz"])
    with pytest.raises(AssertionError, match="weights were read"):
        encoder.encode_queries(["a1"])


def test_rows_follow_the_texts(encoder):
    vectors = encoder.encode_passages(TEXTS)
    assert len(vectors) == len(TEXTS)
    assert np.diff(vectors.indptr)[[1, 2]].tolist() == [0, 0], "no token of the vocabulary, no dimension"
    assert (np.diff(vectors.indptr)[[0, 3, 4]] >= 16).all()
    assert (vectors.weights > 0).all()
    vectors.validate()


@pytest.mark.parametrize("representation", ["theta", "lex", "bin", "bot"])
def test_nothing_gives_nothing(encoder, representation):
    assert len(encoder.encode_queries([], representation=representation)) == 0
    assert len(encoder.encode_queries([""], representation=representation).dims) == 0


def test_representations(encoder):
    theta = encoder.encode_passages(TEXTS)
    lex = encoder.encode_passages(TEXTS, representation="lex")
    binary = encoder.encode_passages(TEXTS, representation="bin")
    bags = encoder.encode_passages(TEXTS, representation="bot")
    np.testing.assert_array_equal(binary.dims, theta.dims)
    assert (binary.weights == 1).all()
    np.testing.assert_array_equal(lex.dims, bags.dims)
    assert (bags.weights == 1).all()
    np.testing.assert_array_equal(lex.toarray(), np.where(bags.toarray() > 0, theta.toarray(), 0))


def test_sparsification(tiny_model, backend):
    rows = {
        name: set(load_encoder(tiny_model, backend=backend, sparsify=name).encode_queries(["a1 a2"]).dims.tolist())
        for name in ("union", "topk", "own")
    }
    assert rows["own"] == {1, 2}
    assert len(rows["topk"]) == 8
    assert rows["union"] == rows["topk"] | rows["own"]


def test_max_active_dims(encoder):
    assert len(encoder.encode_queries(["a1"], max_active_dims=3).dims) in (3, 4)
    assert len(encoder.encode_queries(["a1"], max_active_dims=10**9).dims) == encoder.dim


def test_own_dims_equal_the_bags(encoder):
    for dims, row in zip(encoder.own_dims(TEXTS), encoder.encode_passages(TEXTS, representation="bot"), strict=True):
        np.testing.assert_array_equal(dims, row[0])


def test_windows_and_their_length(tiny_model, backend):
    words = [f"a{i}" for i in range(100)]
    encoder = load_encoder(tiny_model, backend=backend, device="cpu", dtype="float32")
    parts = [" ".join(words[start : start + 30]) for start in (0, 30, 60, 70)]
    np.testing.assert_allclose(whole(encoder, [" ".join(words)])[0], whole(encoder, parts).max(axis=0), rtol=1e-5)
    longer = load_encoder(tiny_model, backend=backend, device="cpu", dtype="float32", max_length=64)
    halves = [" ".join(words[:62]), " ".join(words[38:])]
    np.testing.assert_allclose(whole(longer, [" ".join(words)])[0], whole(longer, halves).max(axis=0), rtol=1e-5)


def test_truncation_says_how_much_it_left_out(tiny_model, backend):
    words = [f"a{i}" for i in range(100)]
    encoder = load_encoder(tiny_model, backend=backend, device="cpu", dtype="float32", truncate=True)
    with pytest.warns(UserWarning, match="left out 75 tokens of 2 texts longer than 30") as caught:
        cut = encoder.encode_passages([" ".join(words), " ".join(words[:35]), "a1"])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(cut.row(0)[1], cut.row(1)[1])
    with pytest.warns(UserWarning, match="left out 70 tokens of 1 texts"):
        bag = encoder.encode_passages([" ".join(words)], representation="bot")
    np.testing.assert_array_equal(bag.dims, np.arange(30))


def test_batches_of_many_lengths(encoder):
    rng = np.random.default_rng(1)
    texts = [" ".join(f"a{i}" for i in rng.integers(0, 999, n)) for n in rng.integers(1, 60, 300)]
    together = whole(encoder, texts)
    for i in (0, 7, 150, 299):
        np.testing.assert_allclose(whole(encoder, [texts[i]])[0], together[i], rtol=1e-5)


def test_backends_agree_in_float32(tiny_model):
    pytest.importorskip("torch")
    texts = [" ".join(f"a{i}" for i in range(n)) for n in (1, 5, 29, 80)]
    first, second = (
        whole(load_encoder(tiny_model, backend=name, device="cpu", dtype="float32"), texts)
        for name in ("numpy", "torch")
    )
    np.testing.assert_allclose(first, second, rtol=1e-4)


def test_threads_share_one_encoder(encoder, monkeypatch):
    loads = []
    build = Backbones._build
    monkeypatch.setattr(Backbones, "_build", lambda self, *args, **how: loads.append(args) or build(self, *args, **how))
    results = [None] * 8
    barrier = threading.Barrier(8)

    def work(i):
        barrier.wait()
        results[i] = encoder.encode_queries(["a1 a2", "a3"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    for result in results:
        np.testing.assert_array_equal(result.dims, results[0].dims)
        np.testing.assert_array_equal(result.weights, results[0].weights)


def test_pickling_keeps_the_settings(tiny_model, backend):
    encoder = load_encoder(
        tiny_model, backend=backend, device="cpu", dtype="float32", sparsify="topk", max_length=20, truncate=True
    )
    expected = encoder.encode_queries(["a1 a2"])
    data = pickle.dumps(encoder)
    assert len(data) < 2000, "weights are not pickled"
    again = pickle.loads(data)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(again.encode_queries(["a1 a2"]).weights, expected.weights)


def test_fingerprint(tiny_model, make_model, make_weights):
    base = load_encoder(tiny_model).fingerprint
    for same in ({"backend": "numpy"}, {"dtype": "float32"}, {"device": "cpu"}):
        assert load_encoder(tiny_model, **same).fingerprint == base
    for other in (
        {"sparsify": "topk"},
        {"normalization": "none"},
        {"truncate": True},
        {"max_length": 20},
        {"activation": "log1p_relu"},
    ):
        assert load_encoder(tiny_model, **other).fingerprint != base, other
    assert load_encoder(make_model(make_weights(1))).fingerprint != base
    assert load_encoder(make_model(name="elsewhere")).fingerprint == base, "the place does not matter"


def test_backend_rule(tiny_model, monkeypatch):
    monkeypatch.setattr("sidr_rag.encoder.backbones._GPU_DRIVERS", ())
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    automatic = load_encoder(tiny_model)._backbones
    assert automatic.choice("query") == "numpy"
    assert load_encoder(tiny_model, backend="numpy")._backbones.choice("passage") == "numpy"
    if automatic._torch:
        assert automatic.choice("passage") == "torch"
        # NumPy reads the first passages, until torch's import would have paid; then torch stays.
        assert [automatic.choice("passage", n) for n in (10, 7000, 2000, 1)] == ["numpy", "numpy", "torch", "torch"]
        assert load_encoder(tiny_model)._backbones.choice("passage", 20_000) == "torch"
        assert load_encoder(tiny_model, dtype="bfloat16")._backbones.choice("passage", 10) == "torch"
        assert load_encoder(tiny_model, backend="torch")._backbones.choice("query") == "torch"
        assert load_encoder(tiny_model, device="cuda")._backbones.choice("query") == "torch"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert load_encoder(tiny_model)._backbones.choice("passage") == "numpy"
    with pytest.raises(MissingExtraError, match=r"sidr-rag\[torch\]"):
        load_encoder(tiny_model, backend="torch")


def test_absent_cuda_device(tiny_model):
    torch = pytest.importorskip("torch")
    encoder = load_encoder(tiny_model, device=f"cuda:{torch.cuda.device_count() + 7}")
    with pytest.raises(InvalidInputError, match="no such CUDA device"):
        encoder.encode_queries(["a1"])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sparsify": "all"}, InvalidInputError, "sparsify is 'all'.*'union'"),
        ({"backend": "jax"}, InvalidInputError, "backend is 'jax'"),
        ({"dtype": "float8"}, InvalidInputError, "dtype is 'float8'"),
        ({"device": "tpu"}, InvalidInputError, "device is 'tpu'"),
        ({"device": 0}, InvalidTypeError, "device has type int"),
        ({"device": "cuda", "backend": "numpy"}, InvalidInputError, "'numpy' runs on the CPU"),
        ({"normalization": "nfd"}, InvalidInputError, "normalization"),
        ({"activation": "relu"}, InvalidInputError, "activation is 'relu'"),
        ({"max_length": 2}, InvalidInputError, "max_length is 2"),
        ({"max_length": 65}, InvalidInputError, "max_length is 65.*64 positions"),
        ({"max_length": 8.0}, InvalidTypeError, "max_length has type float"),
    ],
)
def test_bad_options(tiny_model, options, error, words):
    with pytest.raises(error, match=words):
        load_encoder(tiny_model, **options)


@pytest.mark.parametrize(
    ("texts", "options", "error", "words"),
    [
        ("one text", {}, InvalidTypeError, "texts has type str"),
        (None, {}, InvalidTypeError, "texts has type NoneType"),
        (["a1", 5], {}, InvalidTypeError, r"texts\[1\] has type int"),
        (["a1"], {"representation": "dense"}, InvalidInputError, "representation is 'dense'.*'theta'"),
        (["a1"], {"max_active_dims": 0}, InvalidInputError, "max_active_dims is 0"),
        (["a1"], {"max_active_dims": 1.5}, InvalidTypeError, "max_active_dims has type float"),
        (["a1"], {"max_active_dims": True}, InvalidTypeError, "max_active_dims has type bool"),
    ],
)
def test_bad_calls(tiny_model, texts, options, error, words):
    encoder = load_encoder(tiny_model)
    for encode in (encoder.encode_queries, encoder.encode_passages):
        with pytest.raises(error, match=words):
            encode(texts, **options)


def test_a_model_that_reads_no_token(make_model):
    with pytest.raises(InvalidInputError, match=r"max_length 2 \(query\)"):
        load_encoder(make_model(max_length={"query": 2, "passage": 8}))


def test_it_satisfies_the_protocols(encoder):
    from sidr_rag.protocols import PassageEncoder, QueryEncoder

    def accepts(query_encoder: QueryEncoder, passage_encoder: PassageEncoder) -> str:
        return query_encoder.fingerprint + passage_encoder.fingerprint

    assert accepts(encoder, encoder) == encoder.fingerprint * 2
