"""How many tokens a text has for a language model, without ever fetching a tokenizer."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Protocol, runtime_checkable

from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError, ModelNotFoundError

_DEFAULT_ENCODING = "cl100k_base"


@runtime_checkable
class SequenceTokenizer(Protocol):
    """A checkpoint's tokenizer, such as `sidr.encoder.tokenizer`."""

    def sequence_ids(self, text: str) -> list[int]:
        """The text's token ids."""
        ...


@runtime_checkable
class TextEncoding(Protocol):
    """A `tiktoken.Encoding`, or whatever encodes as it does."""

    def encode_ordinary(self, text: str) -> list[int]:
        """The text's token ids; markers typed in the text are ordinary text."""
        ...


Counter = str | SequenceTokenizer | TextEncoding | Callable[[str], int]


def token_counter(counter: Counter = "auto") -> tuple[str, Callable[[str], int]]:
    """A function that counts tokens, and its name.

    Args:
        counter: "auto" (tiktoken's cl100k_base where this machine has it, else "checkpoint"), "checkpoint" (the
            bundled model's own tokenizer), a name of tiktoken's such as "o200k_base", an object with
            `encode_ordinary` (a `tiktoken.Encoding`) or `sequence_ids` (`sidr.encoder.tokenizer`), or a function.

    Raises:
        MissingExtraError: if an encoding is named and tiktoken is not installed.
        ModelNotFoundError: if its file is not on this machine; it is never fetched.
        InvalidInputError: if tiktoken has no encoding of that name.
        InvalidTypeError: for anything else.
    """
    if isinstance(counter, str):
        if counter == "auto":
            try:
                return _DEFAULT_ENCODING, _encoding_counter(_local_encoding(_DEFAULT_ENCODING))
            except (MissingExtraError, ModelNotFoundError):
                counter = "checkpoint"
        if counter == "checkpoint":
            return "checkpoint", _bundled_counter()
        return counter, _encoding_counter(_local_encoding(counter))
    if isinstance(counter, TextEncoding):
        return str(getattr(counter, "name", type(counter).__name__)), _encoding_counter(counter)
    if isinstance(counter, SequenceTokenizer):
        return "checkpoint", _sequence_counter(counter)
    if callable(counter):
        return getattr(counter, "__name__", type(counter).__name__), counter
    raise InvalidTypeError(
        f"counter is a {type(counter).__name__}; give 'auto', 'checkpoint', the name of a tiktoken encoding, "
        "a tokenizer, or a function from text to a number"
    )


def _encoding_counter(encoding: TextEncoding) -> Callable[[str], int]:
    # tiktoken refuses lone surrogates; a replacement character has as many tokens as a reader would see.
    return lambda text: len(encoding.encode_ordinary(text.encode("utf-8", "replace").decode("utf-8")))


def _sequence_counter(tokenizer: SequenceTokenizer) -> Callable[[str], int]:
    return lambda text: len(tokenizer.sequence_ids(text))


@lru_cache(maxsize=1)
def _bundled_counter() -> Callable[[str], int]:
    from sidr_rag.encoder.resolve import DEFAULT_FOLDER
    from sidr_rag.text.tokenizer import BagTokenizer

    return _sequence_counter(BagTokenizer.from_file(DEFAULT_FOLDER / "tokenizer.json"))


@lru_cache(maxsize=8)
def _local_encoding(name: str) -> TextEncoding:
    """An encoding of tiktoken's own list, made from a file that is on this machine."""
    try:
        tiktoken = import_module("tiktoken")
        openai_public = import_module("tiktoken_ext.openai_public")  # tiktoken's own list of encodings
    except ImportError:
        raise MissingExtraError("tiktoken", "pack", f"counting tokens with {name!r}") from None
    constructor = openai_public.ENCODING_CONSTRUCTORS.get(name)
    if constructor is None:
        known = ", ".join(sorted(openai_public.ENCODING_CONSTRUCTORS))
        raise InvalidInputError(f"counter={name!r} is not known; choose 'auto', 'checkpoint' or one of {known}")
    if "load_tiktoken_bpe" not in constructor.__code__.co_names:
        raise ModelNotFoundError(f"counter={name!r} is not made of one file; give a tiktoken.Encoding, or 'auto'")
    # The constructor's own code with a loader that reads local files only, where tiktoken's would download.
    offline = FunctionType(constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": _ranks})
    encoding: TextEncoding = tiktoken.Encoding(**offline())
    return encoding


def _ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """The table of merges at an address, from a copy under the name that tiktoken gives it, the address's SHA-1."""
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    for folder in _folders():
        try:
            data = (folder / name).read_bytes()
        except OSError:
            continue
        if expected_hash is None or hashlib.sha256(data).hexdigest() == expected_hash:
            return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines()) if token}
    title = url.rsplit("/", 1)[-1]
    raise ModelNotFoundError(
        f"counter: the file {title} is not on this machine and nothing is downloaded; put it under the name {name} "
        "into a folder named by TIKTOKEN_CACHE_DIR, or use counter='checkpoint'"
    )


def _folders() -> Iterator[Path]:
    """Where tiktoken keeps what it fetched, and where an installed package ships encodings."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path(tempfile.gettempdir()) / "data-gym-cache"
    found = importlib.util.find_spec("llama_index")  # looked up, not imported
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        yield Path(place) / "core" / "_static" / "tiktoken_cache"
