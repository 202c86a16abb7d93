"""The tokenizer that belongs to a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.resolve import tokenizer_source
from sidr_rag.encoder.vocabulary_file import tokenizer_json
from sidr_rag.errors import InvalidInputError

if TYPE_CHECKING:
    from sidr_rag.text.tokenizer import BagTokenizer, Normalization


def load_tokenizer(
    folder: Path, config: ModelConfig, normalization: str, max_tokens: int | None = None
) -> BagTokenizer:
    """Read the folder's tokenizer.json or vocab.txt, or the bundled tokenizer where it is the model's own.

    Args:
        folder: of the model.
        config: of the model.
        normalization: "nfkc" or "none".
        max_tokens: bags hold no more than the first so many tokens of a text; None for all.

    Raises:
        ModelNotFoundError: if there is none.
        InvalidInputError: if it cannot be used, or `normalization` is neither "nfkc" nor "none".
    """
    from sidr_rag.text.tokenizer import BagTokenizer

    source = tokenizer_source(folder, config)
    how = cast("Normalization", normalization)  # the tokenizer checks it
    if source.suffix == ".json":
        return BagTokenizer.from_file(
            source, vocab_offset=config.vocab_offset, normalization=how, max_tokens=max_tokens
        )
    return BagTokenizer(
        tokenizer_json(source), vocab_offset=config.vocab_offset, normalization=how, max_tokens=max_tokens
    )


def special_token_ids(tokenizer: BagTokenizer, config: ModelConfig) -> tuple[int, int]:
    """The ids that open and close every sequence ([CLS] and [SEP]).

    Raises:
        InvalidInputError: if the tokenizer has none, or ids that the model has no embedding for.
    """
    special = tokenizer.special_ids
    missing = [name for name in ("cls", "sep") if name not in special]
    if missing:
        raise InvalidInputError(f"model {config.name!r}: its tokenizer has no {' and no '.join(missing)} token")
    highest = max(int(tokenizer.vocabulary.dim_to_token.max()), special["cls"], special["sep"])
    if config.bert is not None and highest >= config.bert.vocab_size:
        raise InvalidInputError(
            f"model {config.name!r}: its tokenizer has ids up to {highest}, but config.json gives vocab_size "
            f"{config.bert.vocab_size}; use the tokenizer the model was trained with"
        )
    return special["cls"], special["sep"]
