from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import sidr_rag.errors
from sidr_rag.files.document import Section
from sidr_rag.files.kinds import kind_of
from sidr_rag.files.limits import Limits
from sidr_rag.text.tokenizer import BagTokenizer

Loaded = tuple[list[Section], list[str]]


@pytest.fixture(scope="session")
def files_tokenizer() -> BagTokenizer:
    package = Path(sidr_rag.errors.__file__).parent
    return BagTokenizer.from_file(package / "encoder" / "default" / "tokenizer.json")


@pytest.fixture
def load_file(tmp_path: Path) -> Callable[..., Loaded]:
    """Write content under a name and load it: (sections, faults)."""

    def load(name: str, content: str | bytes | None = None, limits: Limits | None = None) -> Loaded:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        kind = kind_of(path)
        assert kind is not None
        faults: list[str] = []
        return list(kind.loader()(path, limits or Limits(), faults.append)), faults

    return load
