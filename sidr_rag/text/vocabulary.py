"""The vocabulary space: which ids of a tokenizer are dimensions of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidr_rag.errors import InvalidInputError, InvalidTypeError

_BERT_UNCASED_OFFSET = 999


@dataclass(eq=False)
class Vocabulary:
    """A tokenizer's dimensions; special ids ([UNK], padding, ...) are never among them.

    Attributes:
        dim: number of dimensions.
        dim_to_token: i32[dim]; the token id of each dimension, ascending.
        token_to_dim: i32[n_tokens]; the dimension of each token id, -1 where it has none.
        tokens: text of each token id.
    """

    dim: int
    dim_to_token: NDArray[np.int32]
    token_to_dim: NDArray[np.int32]
    tokens: tuple[str, ...]

    @classmethod
    def from_tokenizer_json(cls, data: Mapping[str, Any], vocab_offset: int | None = None) -> Vocabulary:
        """Read the vocabulary of a parsed tokenizer.json.

        Args:
            data: the file's object.
            vocab_offset: token ids below it are no dimensions. None: 999 for vocabularies laid out like
                bert-base-uncased's (999 reserved ids, then "!"), else 0. Special ids are left out in any case.

        Raises:
            InvalidInputError: if the object holds no vocabulary, or the offset leaves no dimension.
            InvalidTypeError: if the offset is not an int.
        """
        tokens = token_texts(data)
        special = special_token_ids(data, tokens)
        if vocab_offset is None:
            vocab_offset = detected_offset(tokens)
        if isinstance(vocab_offset, bool) or not isinstance(vocab_offset, int):
            raise InvalidTypeError(f"vocab_offset must be an int or None, not {type(vocab_offset).__name__}")
        is_dim = np.zeros(len(tokens), dtype=np.bool_)
        is_dim[max(vocab_offset, 0) :] = True
        is_dim[sorted(special)] = False
        if vocab_offset < 0 or not is_dim.any():
            raise InvalidInputError(
                f"vocab_offset={vocab_offset}: give a number from 0 up that leaves a part of the "
                f"{len(tokens)} token ids as dimensions"
            )
        dim_to_token = np.flatnonzero(is_dim).astype(np.int32)
        token_to_dim = np.full(len(tokens), -1, dtype=np.int32)
        token_to_dim[dim_to_token] = np.arange(len(dim_to_token), dtype=np.int32)
        dim_to_token.flags.writeable = token_to_dim.flags.writeable = False
        return cls(len(dim_to_token), dim_to_token, token_to_dim, tokens)

    def token(self, dim: int) -> str:
        """The text of a dimension's token.

        Raises:
            InvalidInputError: if `dim` is outside 0..self.dim-1.
        """
        if not 0 <= dim < self.dim:
            raise InvalidInputError(f"dim={dim} must lie in 0..{self.dim - 1}")
        return self.tokens[int(self.dim_to_token[dim])]


def model_vocab(data: Mapping[str, Any]) -> dict[str, int]:
    """Token text to id of the model part of a parsed tokenizer.json (without added tokens).

    Raises:
        InvalidInputError: if there is none.
    """
    model = data.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocab, list):  # Unigram: [text, score] by id
        return {str(entry[0]): i for i, entry in enumerate(vocab)}
    if not isinstance(vocab, dict) or not vocab:
        raise InvalidInputError("tokenizer: the JSON has no model.vocab; give a Hugging Face tokenizer.json")
    return vocab


def token_texts(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The text of each token id, added tokens included; "" where an id is not used."""
    by_id = {i: text for text, i in model_vocab(data).items()}
    by_id.update((added["id"], added["content"]) for added in data.get("added_tokens") or ())
    return tuple(by_id.get(i, "") for i in range(max(by_id) + 1))


def special_token_ids(data: Mapping[str, Any], tokens: tuple[str, ...]) -> frozenset[int]:
    """Ids that stand for no text: added special tokens, the model's unknown token, and unused ids."""
    ids = {added["id"] for added in data.get("added_tokens") or () if added.get("special")}
    model = data["model"]
    if model.get("unk_token") in tokens:
        ids.add(tokens.index(model["unk_token"]))
    if model.get("unk_id") is not None:
        ids.add(model["unk_id"])
    ids.update(i for i, text in enumerate(tokens) if not text)
    return frozenset(ids)


def detected_offset(tokens: tuple[str, ...]) -> int:
    """999 for vocabularies laid out like bert-base-uncased's, else 0."""
    reserved = tokens[:_BERT_UNCASED_OFFSET]
    is_like_bert = (
        len(tokens) > _BERT_UNCASED_OFFSET
        and tokens[_BERT_UNCASED_OFFSET] == "!"
        and all(text.startswith("[") and text.endswith("]") for text in reserved)
    )
    return _BERT_UNCASED_OFFSET if is_like_bert else 0
