"""Every item of bad input gives the documented result or error, and nothing stored is lost or reordered by it."""

import enum
import math

import numpy as np
import pytest
from stub_encoders import TinyTokenizer, stub_sidr

from sidr_rag import SiDR
from sidr_rag.errors import IndexFormatError, InvalidInputError, InvalidTypeError, ModelNotFoundError, SidrError
from sidr_rag.types import Passage

WORDS = ["copper", "river", "copper river", "", "stone"]


def state(sidr):
    """All that is stored, and what is found, in order."""
    return (
        [(p.id, p.text, p.title, p.metadata) for p in sidr.get(sidr.ids())],
        [(r.passage.id, r.score) for r in sidr.search("copper river stone", k=100)],
    )


@pytest.fixture(params=["memory", "folder"])
def sidr(request, make, tmp_path):
    """A store that must be afterwards what it was before, also when it is opened again."""
    path = tmp_path / "kept" if request.param == "folder" else None
    sidr = make(path)
    sidr.add(WORDS, ids=[f"w{i}" for i in range(5)], metadatas=[{"n": i} for i in range(5)])
    before = state(sidr)
    yield sidr
    assert state(sidr) == before
    if path is not None:
        sidr.close()
        assert state(make(path)) == before


def refused(error, word, call):
    with pytest.raises(error) as caught:
        call()
    assert word in str(caught.value), str(caught.value)
    assert isinstance(caught.value, SidrError)


def test_empty_list(sidr, make):
    assert sidr.add([]) == []
    assert sidr.add([], ids=[], metadatas=[], titles=[]) == []
    assert sidr.add_passages([]) == []
    assert sidr.delete([]) == 0
    assert sidr.get([]) == []
    assert sidr.search([]) == []
    empty = make()
    empty.add([])
    assert empty.search("copper") == []
    assert empty.search("copper", rerank=5) == []
    assert empty.search("copper", search="full") == []
    assert empty.search("copper", filter={"n": 1}) == []
    assert empty.ids() == []
    assert empty.embed() == 0


def test_from_no_texts(tmp_path):
    with SiDR.from_texts([], path=tmp_path / "s") as sidr:
        assert len(sidr) == 0
        assert sidr.search("copper") == []
    with SiDR.open(tmp_path / "s") as sidr:
        assert len(sidr) == 0


@pytest.mark.filterwarnings("error")
def test_empty_strings(make):
    sidr = make()
    given = sidr.add(["", "   ", "\u200b", "\0"], ids=["a", "b", "", "c"])
    assert given == ["a", "b", "", "c"]
    assert len(sidr) == 4
    assert sidr.search("copper") == []
    assert [p.text for p in sidr.get(given)] == ["", "   ", "\u200b", "\0"]
    for query in ("", "  ", "\u200b", "\0", "\ud800"):
        for arguments in ({}, {"search": "full"}, {"search": "alpha"}, {"rerank": 3}):
            assert sidr.search(query, **arguments) == []
    assert sidr.delete(["", "c"]) == 2
    assert sidr.ids() == ["a", "b"]


@pytest.mark.filterwarnings("error")
def test_empty_strings_with_the_default_model():
    with SiDR.from_texts(["", " ", "copper"], ids=list("abc"), num_threads=1) as sidr:
        assert sidr.search("") == sidr.search("\u200b", search="full") == sidr.search("", rerank=2) == []
        assert [r.passage.id for r in sidr.search("copper", search="full")] == ["c"]
        assert [r.passage.id for r in sidr.search("copper", rerank=5)] == ["c"]


@pytest.mark.filterwarnings("error")
def test_one_document(make):
    sidr = make()
    sidr.add(["copper"], ids=["x"])
    for k in (1, 2, 1000):
        assert [r.passage.id for r in sidr.search("copper", k=k)] == ["x"]
        assert [r.passage.id for r in sidr.search("copper", k=k, rerank=k)] == ["x"]
        assert [r.passage.id for r in sidr.search("copper", k=k, search="full")] == ["x"]
    assert sidr.search("river") == []


def test_k_beyond_the_index_and_k_of_zero(sidr):
    assert len(sidr.search("copper river stone", k=10**9)) == 4
    assert len(sidr.search("copper river stone", k=np.int64(2))) == 2
    for arguments in ({}, {"rerank": 3}, {"search": "full"}, {"search": "alpha"}, {"filter": {"n": 1}}):
        assert sidr.search("copper", k=0, **arguments) == []
        assert sidr.search(["copper", "river"], k=0, **arguments) == [[], []]


@pytest.mark.parametrize("name", ["k", "rerank", "max_active_dims"])
@pytest.mark.parametrize("value", [-1, "5", 2.5, True, math.nan, [3], np.float32(2)], ids=repr)
def test_counts_of_another_kind(sidr, name, value):
    error = InvalidInputError if value == -1 and not isinstance(value, bool) else InvalidTypeError
    with pytest.raises(error) as caught:
        sidr.search("copper", **{name: value})
    assert name in str(caught.value)
    assert str(value) in str(caught.value)
    assert issubclass(error, ValueError if error is InvalidInputError else TypeError)


def test_k_of_none_is_a_type_error(sidr):
    refused(InvalidTypeError, "k", lambda: sidr.search("copper", k=None))
    refused(InvalidTypeError, "rerank", lambda: sidr.search("copper", rerank=None))
    vectors = sidr.bags(["copper"])
    refused(InvalidTypeError, "k", lambda: sidr.search_vectors(vectors, k="5"))
    refused(InvalidInputError, "k", lambda: sidr.search_vectors(vectors, k=-5))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"search": "delta"}, "search"),
        ({"first_stage": "tfidf"}, "first_stage"),
        ({"query_repr": "dense"}, "query_repr"),
        ({"reranker": "gpt"}, "reranker"),
        ({"reranker": 5}, "reranker"),
        ({"reranker": object()}, "reranker"),
        ({"min_score": "high"}, "min_score"),
        ({"min_score": math.nan}, "min_score"),
        ({"min_score": True}, "min_score"),
        ({"rerank": 5, "search": "full"}, "rerank"),
        ({"search": None}, "search"),
        ({"search": ["beta"]}, "search"),
        ({"filter": "n = 1"}, "filter"),
        ({"filter": {"n": {"like": 1}}}, "like"),
        ({"filter": {"and": {"n": 1}}}, "and"),
        ({"filter": {5: 1}}, "filter"),
    ],
)
def test_other_arguments_of_search(sidr, arguments, word):
    refused(SidrError, word, lambda: sidr.search("copper", **arguments))


@pytest.mark.parametrize("query", [None, 5, b"copper", {"q": 1}, ["copper", 5], [None], [["copper"]]], ids=repr)
def test_queries_that_are_no_text(sidr, query):
    refused(InvalidTypeError, "query", lambda: sidr.search(query))


# Ids


def test_duplicate_ids_in_one_call(make):
    sidr = make()
    assert sidr.add(["apple", "pear", "plum"], ids=["x", "y", "x"]) == ["x", "y", "x"]
    assert sidr.ids() == ["y", "x"]
    assert sidr.search("apple") == []
    assert [r.passage.id for r in sidr.search("plum")] == ["x"]


def test_duplicate_ids_can_be_refused(sidr):
    refused(InvalidInputError, "'x'", lambda: sidr.add(["a", "b"], ids=["x", "x"], on_conflict="error"))
    refused(InvalidInputError, "'w1'", lambda: sidr.add(["a", "b"], ids=["x", "w1"], on_conflict="error"))


@pytest.mark.parametrize("value", [5, b"x", 1.5, ("x",), True, ["x"]], ids=repr)
def test_ids_that_are_no_strings(sidr, value):
    refused(InvalidTypeError, "ids[1]", lambda: sidr.add(["a", "b"], ids=["x", value]))
    refused(InvalidTypeError, "ids[1]", lambda: sidr.delete(["w0", value]))
    refused(InvalidTypeError, "ids[1]", lambda: sidr.get(["w0", value]))


def test_a_missing_id_is_made_only_on_adding(sidr):
    refused(InvalidTypeError, "ids[0]", lambda: sidr.delete([None]))
    refused(InvalidTypeError, "ids[0]", lambda: sidr.get([None]))


def test_a_single_string_is_no_list(sidr):
    refused(InvalidTypeError, "texts", lambda: sidr.add("copper"))
    refused(InvalidTypeError, "ids", lambda: sidr.add(["copper"], ids="x"))
    refused(InvalidTypeError, "ids", lambda: sidr.delete("w0"))
    refused(InvalidTypeError, "ids", lambda: sidr.get("w0"))
    refused(InvalidTypeError, "titles", lambda: sidr.add(["copper"], titles="t"))
    refused(InvalidTypeError, "metadatas", lambda: sidr.add(["copper"], metadatas={"n": 1}))


@pytest.mark.parametrize("column", ["ids", "metadatas", "titles"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_columns_of_another_length(sidr, column, length):
    values = [{"n": 1} if column == "metadatas" else f"v{i}" for i in range(length)]
    refused(InvalidInputError, column, lambda: sidr.add(["a", "b"], **{column: values}))


@pytest.mark.parametrize("value", [None, 5, b"bytes", ["copper"]], ids=repr)
def test_texts_and_titles_that_are_no_strings(sidr, value):
    refused(InvalidTypeError, "texts[1]", lambda: sidr.add(["a", value], ids=["w0", "w1"]))
    if value is not None:
        refused(InvalidTypeError, "titles[1]", lambda: sidr.add(["a", "b"], titles=["t", value]))
    refused(InvalidTypeError, "texts", lambda: sidr.add(value if not isinstance(value, list) else 5))


def test_passages_with_faults(sidr):
    refused(InvalidTypeError, "passages[1]", lambda: sidr.add_passages([Passage("w0", "new"), "text"]))
    refused(InvalidTypeError, "texts[0]", lambda: sidr.add_passages([Passage("w0", 5)]))
    refused(InvalidTypeError, "ids[0]", lambda: sidr.add_passages([Passage(5, "new")]))
    refused(InvalidTypeError, "'w0'", lambda: sidr.add_passages([Passage("w0", "new", None, {"o": object()})]))


def test_an_error_of_the_caller_s_iterator(sidr):
    def failing():
        yield "copper new"
        raise LookupError("theirs")

    with pytest.raises(LookupError, match="theirs"):
        sidr.add(failing(), ids=["w0", "w1"])
    with pytest.raises(LookupError, match="theirs"):
        sidr.add(["copper"] * 5, ids=iter_ids())


def iter_ids():
    yield "w3"
    raise LookupError("theirs")


# Metadata


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return {"deep": value}


LOOP = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ([1], InvalidTypeError),
        ([], InvalidTypeError),
        ("text", InvalidTypeError),
        (5, InvalidTypeError),
        ({"o": object()}, InvalidTypeError),
        ({"s": {1, 2}}, InvalidTypeError),
        ({"b": b"bytes"}, InvalidTypeError),
        ({"c": 1j}, InvalidTypeError),
        ({5: "key"}, InvalidTypeError),
        ({"in": {5: "key"}}, InvalidTypeError),
        ({None: 1}, InvalidTypeError),
        ({"a": np.arange(3)}, InvalidTypeError),
        ({"n": math.nan}, InvalidInputError),
        ({"n": [math.inf]}, InvalidInputError),
        ({"n": 10**5000}, InvalidInputError),
        (nested(100), InvalidInputError),
        (nested(100_000), InvalidInputError),
        (LOOP, InvalidInputError),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, type) else "",
)
def test_metadata_that_is_not_json(sidr, metadata, error):
    refused(error, "'x'", lambda: sidr.add(["a", "b"], ids=["w0", "x"], metadatas=[None, metadata]))


def test_metadata_that_json_can_give_back(make):
    class Colour(str, enum.Enum):
        RED = "red"

    sidr = make()
    sidr.add(["a"], ids=["x"], metadatas=[{"t": (1, 2), "e": Colour.RED, "f": np.float64(0.5), **nested(60)}])
    [passage] = sidr.get(["x"])
    assert passage.metadata == {"t": [1, 2], "e": "red", "f": 0.5, **nested(60)}
    assert type(passage.metadata["e"]) is str
    sidr.add([Colour.RED], ids=[Colour.RED], titles=[Colour.RED])
    assert sidr.get(["red"]) == [Passage("red", "red", "red")]
    assert [r.passage.id for r in sidr.search("red")] == ["red"]


# Folders and models


@pytest.mark.parametrize("kind", ["missing", "empty", "files", "file", "segments of nothing"])
def test_a_folder_that_is_no_store(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("hello", encoding="utf-8")
    elif kind != "missing":
        path.mkdir()
    if kind == "files":
        (path / "notes.txt").write_text("hello", encoding="utf-8")
    if kind == "segments of nothing":
        (path / "segments").mkdir()
    before = sorted(tmp_path.rglob("*"))
    refused(IndexFormatError, str(path), lambda: SiDR.open(path))
    if kind == "files":
        refused(IndexFormatError, "not empty", lambda: SiDR.open(path, create=True))
        refused(IndexFormatError, "not empty", lambda: SiDR.from_texts(["a"], path=path, overwrite=True))
    if kind == "file":
        refused(SidrError, str(path), lambda: SiDR.open(path, create=True))
        refused(SidrError, str(path), lambda: SiDR.from_texts(["a"], path=path))
    assert sorted(tmp_path.rglob("*")) == before


def test_saving_to_a_folder_with_other_things(sidr, tmp_path, make):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("mine", encoding="utf-8")
    refused(IndexFormatError, "not empty", lambda: sidr.save(tmp_path / "files"))
    other = make(tmp_path / "other")
    other.add(["theirs"], ids=["t"])
    refused(IndexFormatError, "another store", lambda: sidr.save(tmp_path / "other"))
    assert other.ids() == ["t"]
    assert (tmp_path / "files" / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_store_made_with_another_tokenizer(make, tmp_path, tokenizer):
    made = make(tmp_path / "s")
    made.add(["copper"], ids=["x"])
    made.close()
    other = TinyTokenizer(fingerprint="another-one")
    with pytest.raises(IndexFormatError) as caught:
        stub_sidr(other, tmp_path / "s")
    assert tokenizer.fingerprint in str(caught.value)
    assert "another-one" in str(caught.value)
    assert make(tmp_path / "s").ids() == ["x"]


def test_a_store_made_with_another_normalization(tmp_path):
    SiDR.from_texts(["copper"], ids=["x"], path=tmp_path / "s").close()
    refused(IndexFormatError, "normalization", lambda: SiDR.open(tmp_path / "s", normalization="none"))
    with SiDR.open(tmp_path / "s") as sidr:
        assert sidr.ids() == ["x"]


@pytest.mark.parametrize("name", ["no-such-folder/model", "./nowhere", "nobody/no-such-model-anywhere"])
def test_a_missing_model(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ModelNotFoundError, ImportError)) as caught:
        SiDR.from_texts(["copper"], path=tmp_path / "s", model=name)
    assert isinstance(caught.value, SidrError)
    assert not (tmp_path / "s").exists()


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "m").mkdir()
    with pytest.raises(SidrError, match="m"):
        SiDR.from_texts(["copper"], model=tmp_path / "m")


def test_a_file_that_is_not_text(tmp_path, tokenizer):
    from sidr_rag.files import read_passages

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("copper", encoding="utf-8")
    (tmp_path / "docs" / "b.txt").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "docs" / "c.pdf").write_bytes(b"no pdf at all")
    sidr = stub_sidr(TinyTokenizer())
    sidr.add(["kept"], ids=["k"])
    sidr.add_passages(read_passages(tmp_path / "docs", tokenizer=tokenizer))
    assert sidr.ids()[0] == "k"
    assert [p.text for p in sidr.get(sidr.ids())] == ["kept", "copper"]
