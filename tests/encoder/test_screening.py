"""float32 vectors by way of bfloat16: what the bound leaves open is computed exactly, and nothing is lost."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.sparsify import merged_rows
from sidr_rag.errors import InvalidInputError

torch = pytest.importorskip("torch")

TEXTS = [" ".join(f"a{(i * 31 + j * j * 7) % 900}" for j in range(5 + 9 * i)) for i in range(9)]


def screened(folder, **options):
    """An encoder that screens, whatever this processor can do, and one that does not."""
    pair = []
    for screens in (True, False):
        encoder = load_encoder(folder, backend="torch", device="cpu", **options)
        bert = encoder._backbones.get("passage")
        if screens and not bert.screens:
            bert._rounded = bert._projection.bfloat16()
            bert._norms = bert._projection.norm(dim=1)
            bert._losses = (bert._rounded.float() - bert._projection).norm(dim=1)
        bert.screens = screens
        pair.append(encoder)
    return pair


@pytest.mark.parametrize("sparsify", ["union", "topk", "own"])
@pytest.mark.parametrize("representation", ["theta", "lex", "bin"])
def test_screening_changes_no_dimension_and_no_weight(make_model, make_weights, sparsify, representation):
    weights = make_weights(3) | {"logit_bias": np.array(-2, np.float32)}
    with_, without = screened(make_model(weights), sparsify=sparsify)
    for k in (1, 7, 16, 100):
        got = with_.encode_passages(TEXTS, representation=representation, max_active_dims=k)
        expected = without.encode_passages(TEXTS, representation=representation, max_active_dims=k)
        np.testing.assert_array_equal(got.indptr, expected.indptr)
        np.testing.assert_array_equal(got.dims, expected.dims)
        np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-5)


def test_every_great_logit_is_a_candidate_ties_included(make_model, make_weights):
    weights = make_weights(5)
    table = weights["bert_model.embeddings.word_embeddings.weight"]
    table[400:440] = table[400]  # forty dimensions that are always equal
    encoder, _ = screened(make_model(weights))
    bert = encoder._backbones.get("passage")
    sequences = [[101, *encoder.tokenizer.sequence_ids(text)[:60], 102] for text in TEXTS]
    exact = bert.pooled_logits(sequences)
    none = [np.empty(0, np.int32)] * len(sequences)
    for k in (1, 20, 60):
        for i, (dims, logits) in enumerate(bert.best_logits(sequences, none, k)):
            least = np.sort(exact[i])[-k]
            assert set(np.flatnonzero(exact[i] >= least)) <= set(dims.tolist())
            np.testing.assert_allclose(logits, exact[i][dims], rtol=1e-4, atol=1e-5)
    assert len(bert.best_logits(sequences[:1], none, 1)[0][0]) < len(exact[0]) / 4


def test_own_dimensions_come_in_any_case(make_model):
    encoder, _ = screened(make_model())
    bert = encoder._backbones.get("passage")
    [(dims, logits)] = bert.best_logits([[101, 110, 120, 102]], [np.array([3, 500], np.int32)], 0)
    assert dims.tolist() == [3, 500]
    np.testing.assert_allclose(logits, bert.pooled_logits([[101, 110, 120, 102]])[0][[3, 500]], rtol=1e-4, atol=1e-5)


def test_long_texts_are_the_maximum_over_their_windows(make_model):
    with_, without = screened(make_model())
    long = " ".join(f"a{i % 700}" for i in range(400))
    got, expected = with_.encode_passages([long]), without.encode_passages([long])
    np.testing.assert_array_equal(got.dims, expected.dims)
    np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-5)


def test_damaged_weights_are_an_error(make_model, make_weights):
    weights = make_weights()
    weights["ln.weight"][3] = np.nan
    folder = make_model(weights)
    save_file(weights, folder / "model.safetensors")
    for encoder in screened(folder):
        with pytest.raises(InvalidInputError, match="finite"):
            encoder.encode_passages(["a1 a2"])


def test_merged_rows_keep_the_greatest_of_each_dimension():
    rows = [
        (np.array([1, 4], np.int32), np.array([0.5, -2.0], np.float32)),
        (np.array([0, 4, 9], np.int32), np.array([1.0, -1.0, 3.0], np.float32)),
    ]
    dims, values = merged_rows(rows)
    assert dims.tolist() == [0, 1, 4, 9]
    assert values.tolist() == [1.0, 0.5, -1.0, 3.0]
    assert merged_rows(rows[:1])[0] is rows[0][0]
