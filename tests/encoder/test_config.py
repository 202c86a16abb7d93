import json

import pytest

from sidr_rag.encoder.config import PerSide
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.errors import InvalidInputError, ModelNotFoundError

AUTHORS_SIDE = {
    "type": "vdr",
    "model_id": "bert-base-uncased",
    "shift_vocab_num": 999,
    "topk": 768,
    "pooling": "max",
    "max_len": 128,
}


@pytest.fixture
def write(tmp_path):
    def write_config(values, folder=tmp_path):
        text = values if isinstance(values, str) else json.dumps(values)
        (folder / "config.json").write_text(text, encoding="utf-8")
        return folder

    return write_config


def test_our_layout(write):
    config = load_config(
        write(
            {
                "bert": {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 100},
                "head": "mlm",
                "activation": "log1p_relu",
                "vocab_offset": 7,
                "max_active_dims": {"query": 5, "passage": 9},
                "max_length": {"query": 64, "passage": 400},
                "weighting": {"levels": [1, 2], "future": {"kept": True}},
                "rerank_blend": 0.25,
                "binary_active_dims": 3,
            }
        )
    )
    assert (config.layout, config.head, config.activation, config.vocab_offset) == ("sidr", "mlm", "log1p_relu", 7)
    assert config.max_active_dims == PerSide(5, 9)
    assert config.max_length == PerSide(64, 100), "no longer than there are positions"
    assert config.weighting == {"levels": [1, 2], "future": {"kept": True}}
    assert config.rerank_blend == 0.25
    assert config.binary_active_dims == 3
    assert config.native
    assert config.shared_encoder


def test_authors_layout_without_sizes_is_bert_base(write):
    config = load_config(write({"encoder_q": AUTHORS_SIDE, "encoder_p": {**AUTHORS_SIDE, "max_len": 256, "topk": 9}}))
    assert (config.layout, config.head, config.activation, config.vocab_offset) == (
        "authors",
        "layernorm",
        "elu1p",
        999,
    )
    assert config.max_active_dims == PerSide(768, 9)
    assert config.max_length == PerSide(128, 256)
    assert config.bert.hidden_size == 768
    assert config.head_layer_norm_eps == 1e-5, "torch's default for a LayerNorm, as the golden values show"
    assert not config.shared_encoder
    assert config.base_model == "bert-base-uncased"


def test_hugging_face_bert(write):
    config = load_config(write({"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2, "max_length": 20}))
    assert (config.layout, config.head, config.activation) == ("huggingface", "mlm", "elu1p")
    assert config.native
    assert config.max_length == PerSide(512, 512), "a text generation setting is no window"
    assert config.max_active_dims == PerSide(768, 768)


@pytest.mark.parametrize(
    ("values", "window"),
    [
        ({"model_type": "distilbert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "bert", "hidden_act": "relu"}, 512),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, 512),
        ({"model_type": "modernbert", "max_position_embeddings": 8192}, 512),
    ],
)
def test_other_bodies_are_left_to_transformers(write, values, window):
    config = load_config(write(values))
    assert not config.native
    assert config.max_length == PerSide(window, window)


@pytest.mark.parametrize("sign", ["name", "module", "explicit"])
def test_splade_checkpoints_are_recognised(write, tmp_path, sign):
    values = {"model_type": "distilbert"}
    name = "naver/splade-v3" if sign == "name" else "some/model"
    if sign == "module":
        (tmp_path / "1_SpladePooling").mkdir()
        (tmp_path / "1_SpladePooling" / "config.json").write_text('{"activation_function": "relu"}', encoding="utf-8")
    if sign == "explicit":
        values["activation"] = "log1p_relu"
    assert load_config(write(values), name).activation == "log1p_relu"


def test_a_splade_activation_we_do_not_have_is_refused(write, tmp_path):
    (tmp_path / "1_SpladePooling").mkdir()
    (tmp_path / "1_SpladePooling" / "config.json").write_text('{"activation_function": "gelu"}', encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"activation_function.*'gelu'"):
        load_config(write({"model_type": "bert"}))


def test_folder_without_configuration(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a list"),
        ({"what": 1}, "no known layout"),
        ({"bert": {"hidden_size": "big"}}, "'hidden_size' is 'big'"),
        ({"bert": {"hidden_size": 10, "num_attention_heads": 3}}, "multiple of 3 heads"),
        ({"bert": {"hidden_act": "swish"}}, "'hidden_act' is 'swish'"),
        ({"bert": {"layer_norm_eps": -1}}, "'layer_norm_eps' is -1"),
        ({"bert": {}, "head": "cls"}, "'head' is 'cls'"),
        ({"bert": {}, "activation": "relu"}, "'activation' is 'relu'"),
        ({"bert": {}, "architecture": "gpt"}, "'architecture' is 'gpt'"),
        ({"bert": {}, "vocab_offset": -1}, "'vocab_offset' is -1"),
        ({"bert": {}, "max_active_dims": {"query": 0}}, "'query' is 0"),
        ({"bert": {}, "shared_encoder": "yes"}, "'shared_encoder' is 'yes'"),
        ({"bert": {}, "weighting": 3}, "'weighting' is 3"),
        ({"bert": {}, "rerank_blend": "half"}, "'rerank_blend' is 'half'"),
        ({"bert": {}, "binary_active_dims": 0}, "'binary_active_dims' is 0"),
        ({"bert": {}, "reranker": "cross"}, "'reranker' is 'cross'"),
        ({"bert": {}, "reranker": "all"}, "'reranker' is 'all'"),
        ({"bert": {}, "binary_active_dims": 2.0}, "'binary_active_dims' is 2.0"),
        ({"encoder_q": AUTHORS_SIDE}, "'encoder_p' is None"),
        ({"encoder_q": AUTHORS_SIDE, "encoder_p": {**AUTHORS_SIDE, "hidden_size": 1536}}, "different sizes"),
        ({"encoder_q": AUTHORS_SIDE, "encoder_p": {**AUTHORS_SIDE, "shift_vocab_num": 0}}, "shift_vocab_num"),
        ({"encoder_q": {**AUTHORS_SIDE, "pooling": "mean"}, "encoder_p": AUTHORS_SIDE}, "'pooling' is 'mean'"),
        ({"encoder_q": {**AUTHORS_SIDE, "norm": True}, "encoder_p": AUTHORS_SIDE}, "'norm' is True"),
        ({"architectures": ["T5Model"]}, "'model_type' is None"),
    ],
)
def test_faults_name_the_file_and_the_value(write, values, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        load_config(write(values))
    assert "config.json" in str(caught.value)


def test_identity_leaves_out_what_does_not_touch_vectors(write):
    base = {"bert": {}, "name": "one", "rerank_blend": 0.1}
    first = load_config(write(base)).identity()
    changed = {"name": "two", "rerank_blend": 0.9, "binary_active_dims": 4, "reranker": "maxsim"}
    assert load_config(write({**base, **changed})).identity() == first
    assert load_config(write({**base, "activation": "log1p_relu"})).identity() != first
