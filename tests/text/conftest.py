from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from sidr_rag.text import BagTokenizer

REPO = Path(__file__).resolve().parents[2]
SHARED = REPO.parent / "shared"


@pytest.fixture(scope="session")
def bert_json() -> Path:
    return REPO / "sidr_rag" / "encoder" / "default" / "tokenizer.json"


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    if not SHARED.is_dir():
        pytest.skip("needs the shared folder beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def bag_tokenizer(bert_json: Path) -> BagTokenizer:
    return BagTokenizer.from_file(bert_json)


@pytest.fixture(scope="session")
def raw_tokenizer(bert_json: Path) -> BagTokenizer:
    return BagTokenizer.from_file(bert_json, normalization="none")


@pytest.fixture(scope="session")
def hf_tokenizer(bert_json: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(bert_json))
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.fixture(scope="session")
def cut_word_ids(hf_tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """The oracle for normalized text: Hugging Face's own parts, words cut after every 100 characters."""

    def ids(text: str) -> list[int]:
        words = hf_tokenizer.pre_tokenizer.pre_tokenize_str(hf_tokenizer.normalizer.normalize_str(text))
        pieces = [word[i : i + 100] for word, _ in words for i in range(0, len(word), 100)]
        found = [token.id for piece in pieces for token in hf_tokenizer.model.tokenize(piece)]
        if all(len(word) <= 100 for word, _ in words):
            assert found == hf_tokenizer.encode(text, add_special_tokens=False).ids
        return found

    return ids


@pytest.fixture(scope="session")
def row_counts() -> Callable[..., dict[int, int]]:
    """Token id to count of one row of a TokenCounts, after checking the row's form."""

    def counter(tokenizer: BagTokenizer, counts, row: int) -> dict[int, int]:
        a, b = counts.indptr[row : row + 2]
        dims = counts.dims[a:b].astype(int)
        assert (dims[1:] > dims[:-1]).all()
        assert counts.counts[a:b].sum() == counts.lengths[row]
        ids = tokenizer.vocabulary.dim_to_token[dims]
        return dict(zip(ids.tolist(), counts.counts[a:b].tolist(), strict=True))

    return counter


@pytest.fixture(scope="session")
def id_counts() -> Callable[..., dict[int, int]]:
    """Token id to count of those ids that are dimensions of the bert-base-uncased vocabulary."""
    return lambda ids: dict(Counter(i for i in ids if i >= 999))


@pytest.fixture(scope="session")
def sample_texts() -> list[str]:
    lines = (REPO / "tests" / "data" / "text_sample.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line)["text"] for line in lines]
