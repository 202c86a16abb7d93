"""Tokenizers for model folders that carry only a vocab.txt, as older BERT checkpoints do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sidr_rag.errors import InvalidInputError

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def tokenizer_json(vocab_file: Path) -> str:
    """The tokenizer.json that equals BertTokenizer on this vocab.txt.

    Lower-casing, accents and Chinese characters follow `tokenizer_config.json` beside it, or BERT's defaults.

    Args:
        vocab_file: one token a line; its line number is its id.

    Raises:
        InvalidInputError: if a special token is missing or the configuration is not JSON.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokens = vocab_file.read_text(encoding="utf-8").split("\n")
    while tokens and not tokens[-1]:
        tokens.pop()
    vocab = {token.rstrip("\r"): index for index, token in enumerate(tokens)}
    missing = [token for token in _SPECIAL if token not in vocab]
    if missing:
        raise InvalidInputError(f"model: {vocab_file} lacks {', '.join(missing)}; only BERT vocabularies are supported")
    settings = _settings(vocab_file.parent / "tokenizer_config.json")
    lowercase = settings.get("do_lower_case", True)

    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _SPECIAL])
    return str(tokenizer.to_str())


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInputError(f"model: {path} is not JSON ({error})") from None
    return settings if isinstance(settings, dict) else {}
