"""Masked-LM checkpoints against transformers' own models of the same weights."""

import numpy as np
import pytest

from sidr_rag.encoder import load_encoder
from sidr_rag.errors import InvalidInputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 1103, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXTS = ["a1 a2 a3", "a7", "a100 a5 a5 a5 a9 a12 a700 a998 a3"]


def randomised(model):
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model.eval()


@pytest.fixture
def saved(tmp_path, put_tokenizer):
    def save(model, name="masked"):
        folder = tmp_path / name
        model.save_pretrained(folder)
        put_tokenizer(folder)
        return folder

    return save


def reference(model, encoder, texts, activation):
    """f32[texts, dim] by transformers, one text at a time."""
    rows = []
    for text in texts:
        ids = [101, *encoder.tokenizer.sequence_ids(text), 102]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].max(dim=0).values
        rows.append(logits.numpy()[encoder.tokenizer.vocabulary.dim_to_token])
    pooled = np.stack(rows)
    if activation == "elu1p":
        return np.where(pooled >= 0, pooled + 1, np.exp(np.minimum(pooled, 0)))
    return np.log1p(np.maximum(pooled, 0))


def check(folder, model, backend, activation="elu1p"):
    encoder = load_encoder(folder, backend=backend, device="cpu", dtype="float32", activation=activation)
    got = encoder.encode_passages(TEXTS, max_active_dims=encoder.dim).toarray()
    np.testing.assert_allclose(got, reference(model, encoder, TEXTS, activation), rtol=1e-4, atol=1e-5)
    return encoder


@pytest.mark.parametrize("activation", ["elu1p", "log1p_relu"])
@pytest.mark.parametrize("tied", [True, False])
def test_bert(saved, backend, tied, activation):
    config = transformers.BertConfig(
        **SIZES, intermediate_size=32, max_position_embeddings=64, tie_word_embeddings=tied
    )
    model = randomised(transformers.BertForMaskedLM(config))
    encoder = check(saved(model), model, backend, activation)
    assert encoder.config.native


def test_distilbert_goes_through_transformers(saved):
    config = transformers.DistilBertConfig(
        vocab_size=1103, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=64
    )
    model = randomised(transformers.DistilBertForMaskedLM(config))
    encoder = check(saved(model), model, "auto")
    assert not encoder.config.native
    assert encoder._backbones.choice("query") == "torch"


def test_roberta_goes_through_transformers(saved):
    config = transformers.RobertaConfig(
        **SIZES, intermediate_size=32, max_position_embeddings=66, pad_token_id=1, type_vocab_size=1
    )
    model = randomised(transformers.RobertaForMaskedLM(config))
    encoder = check(saved(model), model, "torch")
    assert encoder.config.max_length.passage == 64
    long = " ".join(f"a{i}" for i in range(200))
    assert len(encoder.encode_passages([long]).dims) >= 200, "windows stay within the positions"


def test_numpy_refuses_other_bodies(saved):
    config = transformers.DistilBertConfig(vocab_size=1103, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    with pytest.raises(InvalidInputError, match=r"'numpy'.*'distilbert'"):
        load_encoder(saved(transformers.DistilBertForMaskedLM(config)), backend="numpy")


@pytest.mark.parametrize("backend_name", ["numpy", "torch"])
def test_a_bert_without_masked_lm_head(saved, backend_name):
    config = transformers.BertConfig(**SIZES, intermediate_size=32, max_position_embeddings=64)
    encoder = load_encoder(saved(transformers.BertModel(config)), backend=backend_name, device="cpu")
    with pytest.raises(InvalidInputError, match=r"lacks the tensor 'mlm\.|no tensors"):
        encoder.encode_queries(["a1"])


def test_a_distilbert_without_masked_lm_head(saved):
    config = transformers.DistilBertConfig(vocab_size=1103, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    encoder = load_encoder(saved(transformers.DistilBertModel(config)), device="cpu")
    with pytest.raises(InvalidInputError, match="no masked-LM checkpoint"):
        encoder.encode_queries(["a1"])
