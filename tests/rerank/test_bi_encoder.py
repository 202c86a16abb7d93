import json

import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError, ModelNotFoundError
from sidr_rag.rerank import BiEncoder
from sidr_rag.rerank.recipe import Recipe

TEXTS = ["a1 a2 a3", "a4", "", "a5 a6 a5 a7"]


def write(folder, name, value):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-tiny", Recipe()),
        ("e5-tiny-v2", Recipe("query: ", "passage: ")),
        ("bge-tiny-en", Recipe("Represent this sentence for searching relevant passages: ", "", "cls")),
        ("contriever", Recipe(normalize=False)),
        ("dpr-ctx_encoder-x", Recipe(normalize=False, pooling="cls")),
        ("all-MiniLM-L6-v2", Recipe(max_length=256)),
    ],
)
def test_families_have_their_prompts_and_pooling(make_bert, name, expected):
    assert BiEncoder(make_bert(name)).recipe == expected


def test_the_folder_s_own_files_go_before_the_family_and_arguments_before_both(make_bert):
    folder = make_bert("e5-mine")
    types = ["Transformer", "Pooling", "Normalize"]
    write(folder, "modules.json", [{"type": f"sentence_transformers.models.{t}"} for t in types])
    write(folder, "1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write(folder, "sentence_bert_config.json", {"max_seq_length": 40})
    write(folder, "config_sentence_transformers.json", {"prompts": {"query": "ask: ", "document": "say: "}})
    assert BiEncoder(folder).recipe == Recipe("ask: ", "say: ", "cls", True, 40)
    given = BiEncoder(folder, query_prompt="", pooling="mean", normalize=False, max_length=20)
    assert given.recipe == Recipe("", "say: ", "mean", False, 20)
    write(folder, "1_Pooling/config.json", {"pooling_mode": "mean", "embedding_dimension": 16})
    assert BiEncoder(folder).recipe.pooling == "mean"
    write(folder, "1_Pooling/config.json", {"pooling_mode_max_tokens": True})
    with pytest.raises(InvalidInputError, match="max"):
        BiEncoder(folder)


def test_prompts_stand_before_the_text(make_bert, backend):
    model = BiEncoder(make_bert("e5-tiny"), backend=backend, device="cpu")
    plain = BiEncoder(make_bert("plain"), backend=backend, device="cpu")
    np.testing.assert_allclose(
        model.encode_queries(["a1 a2"]), plain.encode_passages(["query : a1 a2"]), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        model.encode_passages(["a1 a2"]), plain.encode_queries(["passage : a1 a2"]), rtol=1e-5, atol=1e-6
    )


def test_vectors_are_the_library_s_own_whatever_stands_beside_them(make_bert, backend):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = make_bert(seed=3)
    model = BiEncoder(folder, backend=backend, device="cpu")
    vectors = model.encode_passages(TEXTS)
    assert vectors.shape == (4, 16)
    assert model.width == 16
    peer = transformers.BertModel.from_pretrained(str(folder), add_pooling_layer=False).eval()
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = [101, *model._passages._tokenizer.sequence_ids(text), 102]
        with torch.inference_mode():
            states = peer(torch.tensor([ids])).last_hidden_state[0].numpy()
        mean = states.mean(axis=0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-5)
    assert model.encode_passages([]).shape == (0, 16)


def test_two_models_for_the_two_sides(make_bert):
    question, context = (
        make_bert("dpr-question", seed=1, prefix="question_encoder.bert_model."),
        make_bert("dpr-ctx", seed=2, prefix="ctx_encoder.bert_model."),
    )
    model = BiEncoder(context, query_model=question, backend="numpy")
    assert not np.allclose(model.encode_queries(["a1"]), model.encode_passages(["a1"]))
    np.testing.assert_array_equal(
        model.encode_queries(["a1"]), BiEncoder(question, backend="numpy").encode_queries(["a1"])
    )


def test_fingerprints_change_with_whatever_changes_passage_vectors(make_bert):
    first = make_bert("one", seed=1)
    base = BiEncoder(first).fingerprint
    assert BiEncoder(first, query_prompt="ask: ").fingerprint == base, "of no concern to passages"
    assert BiEncoder(first, backend="numpy").fingerprint == base
    others = [
        BiEncoder(first, passage_prompt="say: "),
        BiEncoder(first, pooling="cls"),
        BiEncoder(first, normalize=False),
        BiEncoder(first, max_length=30),
        BiEncoder(make_bert("two", seed=2)),
    ]
    assert len({base, *(m.fingerprint for m in others)}) == 6


def test_a_long_text_is_read_to_its_end(make_bert):
    model = BiEncoder(make_bert(), backend="numpy", max_length=20)
    head = " ".join(f"a{i}" for i in range(60))
    assert not np.allclose(model.encode_passages([head + " a700"]), model.encode_passages([head + " a800"]), atol=1e-4)


def test_a_loaded_sentence_transformer_is_taken_as_it_is():
    class Model:
        max_seq_length = 32

        def get_sentence_embedding_dimension(self):
            return 3

        def encode(self, texts, *, prompt=None, normalize_embeddings=False, **options):
            vectors = np.array([[len(t), 1.0, len(prompt or "")] for t in texts])
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize_embeddings else vectors

        def encode_query(self, texts, **options):
            return self.encode(texts, **options) * 2

    model = BiEncoder(Model())
    assert model.width == 3
    assert model.recipe is None
    assert model.encode_queries(["abc"]).tolist() == [[6.0, 2.0, 0.0]]
    assert model.encode_passages(["abc", ""]).tolist() == [[3.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    prompted = BiEncoder(Model(), query_prompt="q: ", normalize=True)
    assert prompted.encode_queries(["abc"])[0, 2] == pytest.approx(3 / np.sqrt(19), rel=1e-6)
    assert prompted.fingerprint != model.fingerprint
    with pytest.raises(InvalidInputError, match="pooling"):
        BiEncoder(Model(), pooling="cls")


@pytest.mark.parametrize("model", [5, object(), lambda texts: texts])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(InvalidTypeError, match="model is a"):
        BiEncoder(model)


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match="config"):
        BiEncoder(tmp_path)
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        BiEncoder(tmp_path / "nowhere")


def test_missing_tensors_are_named(make_bert):
    folder = make_bert(num_hidden_layers=3)
    with pytest.raises(InvalidInputError, match=r"encoder\.layer\.2"):
        BiEncoder(folder, backend="numpy").encode_passages(["a1"])


def test_minilm_gives_sentence_transformers_vectors(shared_model):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = shared_model("all-MiniLM-L6-v2")
    texts = ["Copper conducts electricity.", "Falcons hunt by day, “owls” by night — mostly.", "river " * 90]
    peer = sentence_transformers.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": "float32"})
    peer.max_seq_length = 256
    expected = peer.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(BiEncoder(folder, backend="numpy").encode_passages(texts), expected, atol=2e-5)


def test_bfloat16_is_asked_for_by_name_and_stays_close(make_bert):
    pytest.importorskip("torch")
    folder = make_bert("all-tiny")
    exact = BiEncoder(folder, backend="torch", device="cpu")
    narrow = BiEncoder(folder, backend="torch", device="cpu", dtype="bfloat16")
    vectors, near = exact.encode_passages(TEXTS), narrow.encode_passages(TEXTS)
    assert near.dtype == np.float32
    assert not np.array_equal(vectors, near), "another type was asked for"
    assert (np.einsum("ij,ij->i", vectors, near) > 0.995).all()
    assert narrow.fingerprint == exact.fingerprint, "vectors that are kept serve both, as those of V_theta do"
    plain = BiEncoder(folder, backend="numpy", dtype="bfloat16").encode_passages(TEXTS)
    np.testing.assert_allclose(plain, vectors, rtol=1e-3, atol=1e-5)
    with pytest.raises(InvalidInputError, match="dtype is 'float16'"):
        BiEncoder(folder, dtype="float16")
