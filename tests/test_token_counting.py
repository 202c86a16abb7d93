"""Token numbers equal those of the tokenizers themselves, and no file is ever fetched."""

from __future__ import annotations

import hashlib
import importlib.util
import socket
import sys

import pytest

from sidr_rag import InvalidInputError, MissingExtraError, ModelNotFoundError
from sidr_rag import token_counting as counting
from sidr_rag.token_counting import token_counter

TEXT = "The falcon's nest: 12,345 metres! <|endoftext|> [MASK] 東京 🚀 naïve"


@pytest.fixture(autouse=True)
def offline_and_uncached(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a test tried to reach the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    counting._local_encoding.cache_clear()
    yield
    counting._local_encoding.cache_clear()


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_an_encoding_that_a_package_ships(name, monkeypatch, tmp_path):
    tiktoken = pytest.importorskip("tiktoken")
    named, count = token_counter(name)
    assert named == name
    # tiktoken itself, told to look into the same folder.
    shipped = importlib.util.find_spec("llama_index").submodule_search_locations[0] + "/core/_static/tiktoken_cache"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", shipped)
    encoding = tiktoken.get_encoding(name)
    assert count(TEXT) == len(encoding.encode_ordinary(TEXT))
    assert token_counter(encoding)[0] == name
    assert token_counter(encoding)[1](TEXT) == count(TEXT)


def test_lone_surrogates_are_counted():
    for counter in ("cl100k_base", "checkpoint"):
        assert token_counter(counter)[1]("bad \ud800 text") >= 2


def test_the_checkpoint(tokenizer):
    name, count = token_counter("checkpoint")
    assert (name, count(TEXT)) == ("checkpoint", len(tokenizer.sequence_ids(TEXT)))
    assert token_counter(tokenizer)[1](TEXT) == count(TEXT)


def test_auto_falls_back_to_the_checkpoint_where_there_is_no_file_or_no_tiktoken(monkeypatch):
    assert token_counter()[0] == "cl100k_base"
    counting._local_encoding.cache_clear()
    monkeypatch.setattr(counting, "_folders", lambda: iter(()))
    assert token_counter()[0] == "checkpoint"
    with pytest.raises(ModelNotFoundError, match=r"cl100k_base\.tiktoken is not on this machine"):
        token_counter("cl100k_base")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert token_counter()[0] == "checkpoint"
    with pytest.raises(MissingExtraError, match="tiktoken"):
        token_counter("cl100k_base")


def test_what_is_not_here_or_not_known_is_an_error_and_no_download():
    with pytest.raises(ModelNotFoundError, match=r"p50k_base\.tiktoken"):
        token_counter("p50k_base")
    with pytest.raises(ModelNotFoundError, match="gpt2"):
        token_counter("gpt2")
    with pytest.raises(InvalidInputError, match="cl100k_base"):
        token_counter("gpt-99")


def test_a_file_of_other_content_is_not_used(monkeypatch, tmp_path):
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    name = hashlib.sha1(url.encode()).hexdigest()
    (tmp_path / name).write_bytes(b"aGk= 0\n")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert token_counter("cl100k_base")[1]("falcon nest") < 9
    counting._local_encoding.cache_clear()
    monkeypatch.setattr(counting, "_folders", lambda: iter([tmp_path]))
    with pytest.raises(ModelNotFoundError):
        token_counter("cl100k_base")


def test_a_function():
    assert token_counter(len)[1]("four") == 4
    assert token_counter(len)[0] == "len"
