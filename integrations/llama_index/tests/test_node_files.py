"""Files and folders through retriever and vector store, as nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import MetadataMode
from llama_index.retrievers.sidr import SiDRRetriever, SiDRVectorStore

from sidr_rag import FileReadError, InvalidInputError

LEXICAL: dict[str, Any] = {"first_stage": "lexical", "weighting": "binary"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "garden.md").write_text("# Garden\n\nThe greenhouse is watered at six.\n", encoding="utf-8")
    (notes / "deep" / "garden.md").write_text("# Garden\n\nThe pond is cleaned on Monday.\n", encoding="utf-8")
    (notes / "old.txt").write_text("The pump is broken.", encoding="utf-8")
    return notes


def test_from_folder(folder: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    retriever = SiDRRetriever.from_folder(
        folder, path=tmp_path / "s", on_file=lambda file, n: seen.append(Path(file).name), similarity_top_k=9, **LEXICAL
    )
    assert sorted(seen) == ["garden.md", "garden.md", "old.txt"]
    assert retriever.file_report is not None
    assert len(retriever.file_report.loaded) == 3
    (found,) = retriever.retrieve("greenhouse")
    source = str((folder / "garden.md").resolve())
    assert found.node.node_id == f"{source}#0"
    assert found.node.ref_doc_id == source
    assert found.node.metadata == {"source": source, "kind": "md", "start": 0, "section": "Garden", "title": "Garden"}
    assert "kind:" not in found.node.get_content(MetadataMode.LLM)
    assert f"source: {source}" in found.node.get_content(MetadataMode.LLM)
    # Equal names do not collide.
    assert len(retriever.retrieve("garden")) == 2
    retriever.close()
    again = SiDRRetriever.from_persist_dir(tmp_path / "s")
    assert again.similarity_top_k == 9
    assert again.file_report is None
    assert again.delete_ref_doc(source) == 1
    assert again.retrieve("greenhouse") == []
    again.close()


def test_wrong_arguments_make_nothing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileReadError):
        SiDRRetriever.from_folder(tmp_path / "absent", path=tmp_path / "s")
    with pytest.raises(InvalidInputError, match="search='gamma'"):
        SiDRRetriever.from_folder(folder, path=tmp_path / "s", search="gamma")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("make", [SiDRRetriever.from_defaults, SiDRVectorStore])
def test_files_are_added_replaced_and_synced(folder: Path, make: Callable[..., Any]) -> None:
    surface = make(**LEXICAL)
    assert len(surface.add_files([folder / "garden.md", folder / "old.txt"]).written) == 2
    assert surface.add_files(folder / "garden.md").unchanged == 1
    (folder / "garden.md").write_text("# Garden\n\nThe greenhouse is watered at seven.\n", encoding="utf-8")
    (folder / "old.txt").unlink()
    report = surface.sync_folder(folder)
    assert sorted(Path(written).name for written in report.written) == ["garden.md#0", "garden.md#0"]
    assert [Path(removed).name for removed in report.removed] == ["old.txt#0"]
    texts = [node.get_content() for node in surface.get_nodes()]
    assert sorted(texts) == ["The greenhouse is watered at seven.", "The pond is cleaned on Monday."]
    surface.close()


async def test_the_same_in_a_thread(folder: Path) -> None:
    retriever = SiDRRetriever.from_defaults()
    assert len((await retriever.aadd_files(folder)).written) == 3
    (folder / "old.txt").unlink()
    assert len((await retriever.async_folder(folder)).removed) == 1


def test_start_offsets_and_the_whole_text(tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {i} speaks of copper." for i in range(60))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    retriever = SiDRRetriever.from_folder(tmp_path / "long.txt", max_tokens=40, overlap=8)
    nodes = retriever.get_nodes()
    assert len(nodes) > 5
    covered = set()
    for node in nodes:
        start = node.metadata["start"]
        content = node.get_content(MetadataMode.NONE)
        assert text[start : start + len(content)] == content
        covered.update(range(start, start + len(content)))
    assert all(match.start() in covered for match in re.finditer(r"\S", text))
