"""How a bi-encoder's folder and family say that it is to be used: prompts, pooling, length."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidr_rag.errors import InvalidInputError

_BGE_QUERY = "Represent this sentence for searching relevant passages: "
_MAX_LENGTH = 512


@dataclass(frozen=True)
class Recipe:
    """How a bi-encoder turns a text into a vector.

    Attributes:
        query_prompt: put before every query.
        passage_prompt: put before every passage.
        pooling: "mean" of the last hidden states, or the first one ("cls").
        normalize: whether vectors are scaled to length 1.
        max_length: tokens read at once, special ones included.
    """

    query_prompt: str = ""
    passage_prompt: str = ""
    pooling: str = "mean"
    normalize: bool = True
    max_length: int = _MAX_LENGTH


# By a part of the model's name, for models whose folder does not say it all; the first that fits.
_FAMILIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("e5-", {"query_prompt": "query: ", "passage_prompt": "passage: "}),
    ("bge-m3", {"pooling": "cls"}),
    ("bge-", {"query_prompt": _BGE_QUERY, "pooling": "cls"}),
    ("contriever", {"normalize": False}),
    ("dpr-", {"normalize": False, "pooling": "cls"}),
    ("gtr-", {}),
    ("all-minilm", {"max_length": 256}),
)


def has_plain_modules(folder: Path) -> bool:
    """Whether a folder's modules are no more than a transformer, pooling and normalization."""
    path = folder / "modules.json"
    if not path.is_file():
        return True
    kinds = {str(module.get("type", "")).rsplit(".", 1)[-1] for module in json.loads(path.read_text(encoding="utf-8"))}
    return kinds <= {"Transformer", "Pooling", "Normalize"}


def recipe_of(folder: Path, name: str, chosen: Mapping[str, Any]) -> Recipe:
    """What was asked for, before what the folder says, before what is known of the model's family."""
    return Recipe(**{**family_of(name), **_folder_recipe(folder), **chosen})


def family_of(name: str) -> Mapping[str, Any]:
    """What is known of models of that name, as arguments of `Recipe`."""
    lowered = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((values for part, values in _FAMILIES if part in lowered), {})


def _folder_recipe(folder: Path) -> dict[str, Any]:
    """What sentence-transformers' files say."""
    values: dict[str, Any] = {}
    if (folder / "modules.json").is_file():
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        values["normalize"] = any(str(module.get("type", "")).endswith("Normalize") for module in modules)
    for path in sorted(folder.glob("*_Pooling/config.json")):
        modes = json.loads(path.read_text(encoding="utf-8"))
        # One name since sentence-transformers 5, a flag for each way before.
        on = [
            key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens")
            for key, value in modes.items()
            if key.startswith("pooling_mode_") and value is True
        ]
        found = [modes["pooling_mode"]] if isinstance(modes.get("pooling_mode"), str) else on
        if found not in (["mean"], ["cls"]):
            raise InvalidInputError(f"model: {path} pools by {found}; the library's own code pools by mean or cls")
        values["pooling"] = found[0]
    if (folder / "sentence_bert_config.json").is_file():
        length = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8")).get("max_seq_length")
        if isinstance(length, int):
            values["max_length"] = length
    return {**values, **folder_prompts(folder)}


def folder_prompts(folder: Path) -> dict[str, Any]:
    """The prompts that sentence-transformers' files give."""
    path = folder / "config_sentence_transformers.json"
    prompts = (json.loads(path.read_text(encoding="utf-8")).get("prompts") or {}) if path.is_file() else {}
    sides = {"query_prompt": ("query",), "passage_prompt": ("passage", "document")}
    found = {side: next((prompts[key] for key in keys if prompts.get(key)), None) for side, keys in sides.items()}
    return {side: value for side, value in found.items() if value is not None}
