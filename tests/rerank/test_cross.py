import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.rerank import CrossEncoder
from sidr_rag.types import Passage


@pytest.fixture
def folder(make_bert, cross_head):
    return make_bert(
        "cross", prefix="bert.", tensors=cross_head(), architectures=["BertForSequenceClassification"], num_labels=1
    )


def test_scores_are_those_of_transformers(folder, backend):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = CrossEncoder(folder, backend=backend, device="cpu")
    texts = ["a5 a6 a7 a8", "a9", "", "a5 " * 30]
    got = model.scores("a1 a2", texts)
    assert got.dtype == np.float64
    peer = transformers.BertForSequenceClassification.from_pretrained(str(folder), num_labels=1).eval()
    ids = model._pairs._tokenizer.sequence_ids
    for text, score in zip(texts, got, strict=True):
        first, second = [101, *ids("a1 a2"), 102], [*ids(text), 102]
        kinds = torch.tensor([[0] * len(first) + [1] * len(second)])
        with torch.inference_mode():
            expected = peer(torch.tensor([first + second]), token_type_ids=kinds).logits.item()
        assert score == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert model.scores("a1", []).tolist() == []


def test_a_long_passage_counts_by_its_best_window(folder):
    model = CrossEncoder(folder, backend="numpy", max_length=40)
    text = " ".join(f"a{i}" for i in range(90))
    ids = model._pairs._tokenizer.sequence_ids
    room = 40 - 3 - len(ids("a1 a2"))
    words = text.split()
    starts = [*range(0, 90 - room, room), 90 - room]
    windows = [" ".join(words[s : s + room]) for s in starts]
    assert model.scores("a1 a2", [text])[0] == pytest.approx(model.scores("a1 a2", windows).max(), rel=1e-5)


def test_a_question_that_fills_everything_leaves_room_for_the_passage(folder):
    model = CrossEncoder(folder, backend="numpy", max_length=40)
    long = " ".join(f"a{i}" for i in range(100))
    a, b = model.scores(long, ["a1 a2", "a7"])
    assert a != b


def test_titles_are_read_with_the_text(folder):
    model = CrossEncoder(folder, backend="numpy")
    passages = [Passage("x", "a5 a6", "a9"), Passage("y", "a5 a6")]
    np.testing.assert_array_equal(
        model.rerank("a1", passages, np.zeros(2, np.float32)), model.scores("a1", ["a9 a5 a6", "a5 a6"])
    )


def test_eight_bit_weights_are_scaled(folder, make_bert, cross_head):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    stored, plain = {}, {}
    for name, value in tensors.items():
        if value.ndim == 2 and "layer" in name:
            scale = np.float32(np.abs(value).max() / 100)
            codes = (np.rint(value / scale) + 3).astype(np.int8)
            stored |= {name: codes, f"{name}.scale": np.array([scale]), f"{name}.zero_point": np.array([3], np.int16)}
            plain[name] = (codes.astype(np.float32) - 3) * scale
        else:
            stored[name] = plain[name] = value
    save_file(stored, folder / "model.safetensors")
    other = make_bert("plain", architectures=["BertForSequenceClassification"])
    save_file(plain, other / "model.safetensors")
    texts = ["a5 a6", "a9 a10 a11"]
    np.testing.assert_allclose(
        CrossEncoder(folder, backend="numpy").scores("a1", texts),
        CrossEncoder(other, backend="numpy").scores("a1", texts),
        rtol=1e-5,
    )


def test_an_object_with_predict_is_taken():
    class Model:
        def predict(self, pairs, show_progress_bar):
            return np.array([len(q) + len(t) for q, t in pairs], np.float32)

    assert CrossEncoder(Model()).scores("ab", ["c", "def"]).tolist() == [3.0, 5.0]


def test_other_models_are_refused_by_name(make_bert, cross_head):
    with pytest.raises(InvalidInputError, match="BertForSequenceClassification"):
        CrossEncoder(make_bert("plain"))
    with pytest.raises(InvalidTypeError, match="predict"):
        CrossEncoder(5)
    many = make_bert(
        "many", prefix="bert.", tensors=cross_head(outputs=3), architectures=["BertForSequenceClassification"]
    )
    with pytest.raises(InvalidInputError, match="3 outputs"):
        CrossEncoder(many, backend="numpy").scores("a1", ["a2"])
    with pytest.raises(InvalidInputError, match="max_length"):
        CrossEncoder(many, max_length=8)


def test_the_shared_cross_encoder_knows_what_is_relevant(shared_model):
    model = CrossEncoder(shared_model("ms-marco-MiniLM-L12-v2-int8"), backend="numpy")
    texts = [
        "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
        "New York City is famous for the Metropolitan Museum of Art.",
    ]
    good, bad = model.scores("How many people live in Berlin?", texts)
    assert good > 5 > -5 > bad


def test_bfloat16_is_asked_for_by_name_and_stays_close(folder):
    pytest.importorskip("torch")
    texts = ["a5 a6 a7 a8", "a9", "a5 " * 30]
    exact = CrossEncoder(folder, backend="torch", device="cpu").scores("a1 a2", texts)
    near = CrossEncoder(folder, backend="torch", device="cpu", dtype="bfloat16").scores("a1 a2", texts)
    assert not np.array_equal(exact, near), "another type was asked for"
    np.testing.assert_allclose(near, exact, atol=0.1)
    with pytest.raises(InvalidInputError, match="dtype is 'half'"):
        CrossEncoder(folder, dtype="half")
