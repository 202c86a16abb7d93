import numpy as np
import pytest
import torch

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.config import DenseHead, PerSide
from sidr_rag.errors import InvalidInputError
from sidr_rag.rerank.maxsim import maxsim, signs_of, unit_rows
from sidr_rag.search.weighting import Weighting
from sidr_rag.train.maxsim import maxsim as train_maxsim
from sidr_rag.train.model import TrainableEncoder, packed_places
from sidr_rag.train.projection import max_logits
from sidr_rag.train.sections import Model
from sidr_rag.train.texts import TextReader
from sidr_rag.train.vectors import ActiveVectors, active_vectors, kept_dims
from sidr_rag.train.weights_io import initial_state, load_state, model_config, quantized, save_model

TEXTS = ["a1 a2 a3", "a4", "a5 a6 a7 a8 a9 a10 a11 a12 a13 a14", "a15 a16 a15", "a17 a18 a19 a20 a21"]
WANTED = Model(max_active_dims=PerSide(8, 16), max_length=PerSide(16, 32), dropout=0.0)


def trainable(base, tokenizer, wanted=WANTED):
    config = model_config(base, wanted, "trained")
    ids = torch.from_numpy(tokenizer.vocabulary.dim_to_token.astype(np.int64))
    encoder = TrainableEncoder(config, ids, 0.0, torch.float32)
    load_state(encoder, initial_state(base, config, "query", -1.0))
    return encoder.eval(), TextReader(tokenizer, config), config


@pytest.fixture
def tiny(tiny_base, tiny_tokenizer):
    return trainable(tiny_base, tiny_tokenizer)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_it_is_the_same_function_as_the_encoder(tiny, tiny_base, backend):
    encoder, reader, _ = tiny
    expected = load_encoder(tiny_base, backend=backend, device="cpu").encode_queries(TEXTS)
    with torch.no_grad():
        encoded = encoder.encode([reader.query(text) for text in TEXTS])
        vectors = active_vectors(encoder, encoded, reader.own_dims(TEXTS), 8)
    got = vectors.sparse(vectors.theta, encoder.token_ids.numel(), 8)
    np.testing.assert_array_equal(got.indptr, expected.indptr)
    np.testing.assert_array_equal(got.dims, expected.dims)
    np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-5)


def test_padding_and_packing_change_nothing(tiny):
    encoder, reader, _ = tiny
    sequences = [reader.query(text) for text in TEXTS]
    dims = torch.arange(0, 999, 7)
    with torch.no_grad():
        together = encoder.encode(sequences)
        assert sum(len(pack.places) for pack in together) == len(TEXTS)
        for i, sequence in enumerate(sequences):
            alone = encoder.encode([sequence])
            for method in (encoder.dense, encoder.pooled_logits, lambda e: encoder.weights_at(e, dims)):
                torch.testing.assert_close(method(alone)[0], method(together)[i], rtol=1e-5, atol=1e-5)


def test_the_two_ways_to_weights_agree(tiny):
    encoder, reader, _ = tiny
    encoded = encoder.encode([reader.query(text) for text in TEXTS])
    dims = torch.arange(0, 999, 5)
    full = encoder._activation(encoder.pooled_logits(encoded))[:, dims]
    torch.testing.assert_close(encoder.weights_at(encoded, dims), full, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(encoder.weights_at_each(encoded, dims.repeat(len(TEXTS), 1)), full, rtol=1e-5, atol=1e-6)


def test_the_dense_head_is_the_normalised_mean(tiny):
    encoder, reader, _ = tiny
    (pack,) = encoder.encode([reader.query(TEXTS[0])])
    mean = pack.hidden[0].mean(dim=0)
    torch.testing.assert_close(encoder.dense([pack])[0], mean / mean.norm())


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_maxsim_is_what_late_search_scores(tiny, tiny_base, backend):
    encoder, reader, _ = tiny
    library = load_encoder(tiny_base, backend=backend, device="cpu")
    queries = [text for text in TEXTS if len(text.split()) < 8]
    idf = np.random.default_rng(3).random(library.dim, np.float32)
    counts = [idf[reader.token_dims(text)] for text in queries]
    with torch.no_grad():
        asked = encoder.encode([reader.query(text) for text in queries])
        found = encoder.encode([reader.passage(text) for text in TEXTS])
        got = train_maxsim(asked, found, counts)
    assert got.shape == (len(queries), len(TEXTS))
    passages = [signs_of(vectors) for _, vectors in library.encode_tokens(TEXTS)]
    for i, (dims, vectors) in enumerate(library.encode_tokens(queries, "query")):
        shares = idf[dims].astype(np.float64) / idf[dims].sum()
        np.testing.assert_allclose(got[i], maxsim(unit_rows(vectors), shares, passages), atol=1e-5)


def test_the_gradient_of_maxsim_passes_the_rounding(tiny):
    encoder, reader, _ = tiny
    encoder.zero_grad()
    packs = encoder.encode([reader.passage(text) for text in TEXTS])
    counts = [np.ones(len(reader.token_dims(TEXTS[0])), np.float32)]
    train_maxsim(encoder.encode([reader.query(TEXTS[0])]), packs, counts)[0, 3].backward()
    assert float(encoder.embeddings.word_embeddings.weight.grad.abs().sum()) > 0


def test_the_fused_projection_has_the_gradient_of_the_plain_one(monkeypatch):
    monkeypatch.setattr("sidr_rag.train.projection._BLOCK", 200)
    torch.manual_seed(0)
    hidden = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(300, 6, dtype=torch.float64, requires_grad=True)
    toward = torch.randn(3, 300)
    (max_logits(hidden, rows) * toward).sum().backward()
    fused = hidden.grad.clone(), rows.grad.clone()
    hidden.grad = rows.grad = None
    plain = (hidden @ rows.t()).amax(dim=1)
    torch.testing.assert_close(max_logits(hidden, rows), plain.float())
    (plain * toward).sum().backward()
    torch.testing.assert_close(fused[0], hidden.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused[1], rows.grad, rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_part(tiny):
    encoder, reader, _ = tiny
    encoded = encoder.encode([reader.query(text) for text in TEXTS])
    vectors = active_vectors(encoder, encoded, reader.own_dims(TEXTS), 20)
    (vectors.theta.sum() + encoder.dense(encoded)[:, 0].sum()).backward()
    without = [name for name, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_s_topk_keeps_the_top_and_the_own_tokens(tiny):
    encoder, reader, _ = tiny
    encoded = encoder.encode([reader.passage(text) for text in TEXTS])
    own = reader.own_dims(TEXTS)
    dims = torch.arange(999)
    kept = kept_dims(encoder, encoded, own, dims, 10).bool()
    logits = encoder.pooled_logits(encoded)
    for i, mine in enumerate(own):
        expected = set(logits[i].topk(10).indices.tolist()) | set(mine.tolist())
        assert set(torch.nonzero(kept[i])[:, 0].tolist()) == expected


def test_a_query_is_active_where_it_may_be_and_nowhere_else(tiny):
    encoder, reader, _ = tiny
    encoded = encoder.encode([reader.query(text) for text in TEXTS])
    own = reader.own_dims(TEXTS)
    vectors = active_vectors(encoder, encoded, own, 6)
    logits = encoder.pooled_logits(encoded)
    for i, mine in enumerate(own):
        row = vectors.dims[i][vectors.real[i]].tolist()
        assert set(row) == set(logits[i].topk(6).indices.tolist()) | set(mine.tolist())
        assert vectors.dims[i][vectors.own[i] > 0].tolist() == mine.tolist()
    assert bool((vectors.theta[~vectors.real] == 0).all())


@pytest.mark.parametrize("head", ["layernorm", "mlm"])
@pytest.mark.parametrize("quantize", [False, True])
def test_a_saved_model_loads_in_both_encoders_with_equal_vectors(tiny_base, tiny_tokenizer, tmp_path, head, quantize):
    wanted = Model(head=head, max_active_dims=PerSide(8, 16), max_length=PerSide(16, 32))
    encoder, reader, config = trainable(tiny_base, tiny_tokenizer, wanted)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(
                0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    weights = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
    weighting = Weighting((1, 2), (1.0, 0.3), 1.0, 0.5, 0.4, 0.2)
    save_model(
        tmp_path / "out", {"query": weights}, config, tiny_base, dense=False, weighting=weighting, quantize=quantize
    )
    loaded = [load_encoder(tmp_path / "out", backend=backend, device="cpu") for backend in ("numpy", "torch")]
    first, second = (one.encode_passages(TEXTS) for one in loaded)
    np.testing.assert_array_equal(first.dims, second.dims)
    np.testing.assert_allclose(first.weights, second.weights, rtol=1e-5)
    assert Weighting.from_mapping(loaded[0].config.weighting) == weighting
    assert loaded[0].config.dense is None
    if not quantize:
        with torch.no_grad():
            encoded = encoder.encode([reader.passage(text) for text in TEXTS])
            vectors = active_vectors(encoder, encoded, reader.own_dims(TEXTS), 16)
        expected = vectors.sparse(vectors.theta, loaded[0].dim, 16)
        np.testing.assert_array_equal(first.dims, expected.dims)
        np.testing.assert_allclose(first.weights, expected.weights, rtol=1e-5)


def test_two_encoders_are_saved_apart(tiny_base, tiny_tokenizer, tmp_path):
    wanted = Model(shared_encoder=False, max_active_dims=PerSide(8, 16), max_length=PerSide(16, 32))
    encoder, _, config = trainable(tiny_base, tiny_tokenizer, wanted)
    weights = {name: value.detach().numpy() for name, value in encoder.state_dict().items()}
    other = {name: value * np.float32(0.9) for name, value in weights.items()}
    save_model(tmp_path / "out", {"query": weights, "passage": other}, config, tiny_base, dense=True)
    loaded = load_encoder(tmp_path / "out", backend="numpy")
    assert loaded.config.dense == DenseHead("mean", normalize=True)
    same = loaded.encode_queries(TEXTS, max_active_dims=16).weights
    assert not np.allclose(same, loaded.encode_passages(TEXTS, max_active_dims=16).weights[: len(same)])


def test_quantization_is_within_half_a_step():
    matrix = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
    matrix[3] = 0
    codes, scale = quantized(matrix)
    assert codes.dtype == np.int8
    assert np.abs(codes * scale[:, None] - matrix).max() <= scale.max() / 2 + 1e-6


def test_a_diverged_model_is_not_written(tiny, tiny_base, tmp_path):
    encoder, _, config = tiny
    weights = {name: value.detach().numpy().copy() for name, value in encoder.state_dict().items()}
    weights["ln.weight"][0] = np.nan
    with pytest.raises(InvalidInputError, match=r"ln\.weight"):
        save_model(tmp_path / "out", {"query": weights}, config, tiny_base, dense=True)


def test_layers_can_be_dropped(tiny_base, tiny_tokenizer):
    encoder, _, config = trainable(tiny_base, tiny_tokenizer, Model(layers=1, max_length=PerSide(16, 32)))
    assert config.bert.num_hidden_layers == 1
    assert "encoder.layer.0.output.dense.weight" in encoder.state_dict()
    with pytest.raises(InvalidInputError, match=r"model\.layers"):
        model_config(tiny_base, Model(layers=3, max_length=PerSide(16, 32)), "x")
    with pytest.raises(InvalidInputError, match=r"model\.max_length"):
        model_config(tiny_base, Model(), "x")


def test_a_plain_bert_gets_a_fresh_head(shared_models):
    base = shared_models / "all-MiniLM-L6-v2"
    config = model_config(base, Model(), "x")
    state = initial_state(base, config, "query", -4.0)
    assert float(state["logit_bias"]) == -4.0
    assert (state["ln.weight"] == 1).all()
    assert state["encoder.layer.5.output.dense.weight"].shape == (384, 1536)


def test_packs_hold_like_lengths():
    lengths = [10] * 50 + [250] * 40 + [120] * 40
    groups = packed_places(lengths, 4096)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert all(len(group) * max(lengths[i] for i in group) <= 4096 for group in groups)
    padded = sum(len(group) * max(lengths[i] for i in group) for group in groups)
    assert padded <= 1.3 * sum(lengths)
    assert packed_places([9000], 4096) == [[0]]


def test_fewer_dimensions_can_count_than_are_active():
    theta = torch.tensor([[4.0, 1.0, 3.0, 2.0, 0.0]], requires_grad=True)
    own = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0]])
    vectors = ActiveVectors(torch.tensor([[2, 5, 7, 9, 0]]), theta, own, torch.tensor([[True] * 4 + [False]]))
    cut = vectors.cut(2)
    assert cut.tolist() == [[4.0, 1.0, 3.0, 0.0, 0.0]]
    cut.sum().backward()
    assert theta.grad.tolist() == [[1.0, 1.0, 1.0, 0.0, 0.0]]
    assert vectors.cut(None).tolist() == vectors.cut(5).tolist() == theta.tolist()
