import json
import socket

import pytest
from tokenizers import Tokenizer

from sidr_rag.encoder import load_encoder
from sidr_rag.encoder.config_layouts import load_config
from sidr_rag.encoder.resolve import resolve_model, tokenizer_source
from sidr_rag.encoder.vocabulary_file import tokenizer_json
from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError, ModelNotFoundError


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    calls = []

    def refuse(*args, **kwargs):
        calls.append(args)
        raise socket.gaierror("blocked by the test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return calls


def test_default_and_folders_touch_no_network(no_network, default_folder, tiny_model):
    assert resolve_model("default") == default_folder
    assert resolve_model(tiny_model) == resolve_model(str(tiny_model)) == tiny_model.resolve()
    load_encoder("default").encode_queries(["one"])
    assert not no_network


@pytest.mark.parametrize("model", ["./nowhere", "/no/such/folder", "a/b/c", "", "with space", "~/no-such-model"])
def test_missing_folder(no_network, model):
    with pytest.raises(ModelNotFoundError, match="no folder on this machine"):
        resolve_model(model)
    assert not no_network


def test_missing_path(tmp_path):
    with pytest.raises(ModelNotFoundError, match="absent-model"):
        resolve_model(tmp_path / "absent-model")


@pytest.mark.parametrize("model", [None, 3, b"default"])
def test_wrong_type(model):
    with pytest.raises(InvalidTypeError, match=f"type {type(model).__name__}"):
        resolve_model(model)


def test_hub_name_without_network(no_network):
    pytest.importorskip("transformers")
    with pytest.raises(ModelNotFoundError, match=r"could not be reached \(is there a network\?\)") as caught:
        resolve_model("sidr-rag-tests/no-such-model")
    assert "sidr-rag-tests/no-such-model" in str(caught.value)
    assert no_network, "it did try"


def test_hub_name_asks_for_data_files_only(monkeypatch, tiny_model):
    pytest.importorskip("transformers")
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(tiny_model)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    encoder = load_encoder("someone/tiny-model", backend="numpy")
    assert asked == {"name": "someone/tiny-model", "allow_patterns": ["*.json", "*.safetensors", "*.txt"]}
    assert len(encoder.encode_queries(["a1"])) == 1


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_hub_name_needs_the_extra(monkeypatch, no_network, absent):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == absent else find(name))
    with pytest.raises(MissingExtraError, match=rf"'{absent}'.*sidr-rag\[torch\]"):
        resolve_model("someone/some-model")
    assert not no_network


def test_authors_checkpoints_use_the_bundled_tokenizer(golden_checkpoint, default_folder):
    source = tokenizer_source(golden_checkpoint, load_config(golden_checkpoint))
    assert source == default_folder / "tokenizer.json"


def test_no_tokenizer(tiny_model):
    (tiny_model / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"neither tokenizer\.json nor vocab\.txt"):
        load_encoder(tiny_model)


def test_a_tokenizer_larger_than_the_model(tiny_model, default_folder):
    (tiny_model / "tokenizer.json").write_bytes((default_folder / "tokenizer.json").read_bytes())
    with pytest.raises(InvalidInputError, match=r"ids up to 30521.*vocab_size 1103"):
        load_encoder(tiny_model)


def bert_vocab(default_folder):
    vocab = json.loads((default_folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return "\n".join(sorted(vocab, key=vocab.get)) + "\n"


def test_vocab_txt_gives_the_same_tokenizer(tmp_path, default_folder):
    (tmp_path / "vocab.txt").write_text(bert_vocab(default_folder), encoding="utf-8")
    built = Tokenizer.from_str(tokenizer_json(tmp_path / "vocab.txt"))
    bundled = Tokenizer.from_file(str(default_folder / "tokenizer.json"))
    for text in ["Zürich café naïve, $3,000!", "东京 is Tokyo", "[MASK] unaffable\tends", "", "ﬁ ½ e\u0301 \u00ad"]:
        assert built.encode(text).ids == bundled.encode(text).ids


def test_vocab_txt_follows_the_tokenizer_configuration(tmp_path, default_folder):
    (tmp_path / "vocab.txt").write_text(bert_vocab(default_folder), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    normalizer = json.loads(tokenizer_json(tmp_path / "vocab.txt"))["normalizer"]
    assert normalizer["lowercase"] is False


def test_vocab_txt_without_special_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"lacks .*\[CLS\]"):
        tokenizer_json(tmp_path / "vocab.txt")


def test_a_folder_with_vocab_txt_alone(tiny_model):
    before = load_encoder(tiny_model, backend="numpy").encode_queries(["a1 a2"])
    vocab = json.loads((tiny_model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (tiny_model / "tokenizer.json").unlink()
    (tiny_model / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.get)), encoding="utf-8")
    after = load_encoder(tiny_model, backend="numpy").encode_queries(["a1 a2"])
    assert (after.dims == before.dims).all()
    assert (after.weights == before.weights).all()
