"""Passages out of a store and back, by the command line, without loss."""

import json
import sys

import pytest

from sidr_rag import FileReadError, InvalidInputError, Passage, SiDR
from sidr_rag.backends.corpus_file import read_corpus, write_corpus
from sidr_rag.backends.wire import from_wire, key_of, to_wire
from sidr_rag.cli import main

conftest = sys.modules[next(name for name in sys.modules if name.endswith("backends.conftest"))]
PASSAGES = [
    Passage("z", "The last id comes first.\nTwo lines.", "A title", {"page": 3, "f": 1.0, "tags": ["a", None]}),
    Passage("a/ä", "", "", {}),
    Passage("halves", "\ud83d\ude00 \ud800 and \U0001f600 \u2028 \0", None, {"half": "\ud800"}),
    Passage("m", "No title, no metadata."),
]


@pytest.fixture
def store(tmp_path):
    with SiDR.from_passages(PASSAGES, path=tmp_path / "store", weighting="binary"):
        pass
    return tmp_path / "store"


def passages_of(path):
    with SiDR.open(path, read_only=True) as sidr:
        return sidr.get(sidr.ids()), sidr.info()["weighting"], sidr.info()["levels"]


@pytest.mark.parametrize("to", ["qdrant", "milvus", "beir"])
def test_out_and_back(store, tmp_path, to, capsys):
    conftest._needs(to)
    target = {"qdrant": f"qdrant://{tmp_path}/q", "milvus": f"milvus://{tmp_path}/m.db", "beir": str(tmp_path / "beir")}
    assert main(["export", target[to], "--to", to, "--store", str(store)]) == 0
    assert "exported 4 passages" in capsys.readouterr().out
    assert main(["export", target[to], "--to", to, "--store", str(store)]) == 1
    assert "overwrite" in capsys.readouterr().err
    again = ["--overwrite"] if to == "beir" else ["--resume"]
    assert main(["export", target[to], "--to", to, "--store", str(store), *again]) == 0
    weighting = ["--binary"] if to == "beir" else []
    assert main(["import", target[to], "--store", str(tmp_path / "back"), *weighting]) == 0
    assert "imported 4 passages" in capsys.readouterr().out
    assert passages_of(tmp_path / "back") == passages_of(store)
    assert passages_of(store)[0] == PASSAGES


def test_a_target_that_is_something_else(store, capsys):
    assert main(["export", "milvus://host:1/x", "--to", "qdrant", "--store", str(store)]) == 2
    assert main(["export", "host:1/x", "--to", "qdrant", "--overwrite", "--resume", "--store", str(store)]) == 2
    assert main(["export", "host:1/x", "--to", "qdrant", "--token-variable", "NO_SUCH", "--store", str(store)]) == 2
    assert "NO_SUCH" in capsys.readouterr().err


def test_a_foreign_corpus(tmp_path):
    lines = [{"_id": 7, "text": "a text", "title": "t", "metadata": {"url": "x"}}, {"_id": "b", "text": "another"}]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert list(read_corpus(tmp_path)) == [Passage("7", "a text", "t", {"url": "x"}), Passage("b", "another")]
    assert list(read_corpus(path)) == list(read_corpus(tmp_path))


@pytest.mark.parametrize(
    "line",
    ['{"text": "secret"}', '{"_id": "a"}', '{"_id": "a", "text": "secret", "metadata": 3}', '["secret"]', "secret"],
)
def test_malformed_lines_are_named_not_shown(tmp_path, line):
    (tmp_path / "corpus.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(FileReadError, match="line 1") as caught:
        list(read_corpus(tmp_path))
    assert "secret" not in str(caught.value)


def test_a_corpus_is_written_whole_or_not_at_all(tmp_path):
    def broken():
        yield _row("a")
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError):
        write_corpus(broken(), tmp_path / "beir")
    assert list((tmp_path / "beir").iterdir()) == []
    assert write_corpus([_row("a"), _row("b")], tmp_path / "beir") == 2
    with pytest.raises(InvalidInputError, match="is there already"):
        write_corpus([], tmp_path / "beir")


def _row(name):
    from sidr_rag.index.passages import Row

    return Row(1, name, None, "text", "{}")


def test_texts_on_the_wire():
    for text in ("plain", "ü 日本 😀", "", "\x01b64:AA==", "\x01none", "nul \0", "\ud83d", "\ud83d\ude00"):
        wired = to_wire(text)
        wired.encode("utf-8")
        assert "\0" not in wired
        assert from_wire(wired) == text
    assert to_wire("plain ü") == "plain ü"


def test_keys_are_uuids_of_version_five():
    import uuid

    assert uuid.UUID(key_of("é")).version == 5
    assert key_of("é") == str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, "urn:sidr-rag:passage"), "é"))
    assert len({key_of(i) for i in ("a", "b", "\ud800", "e\u0301", "é", "")}) == 6
