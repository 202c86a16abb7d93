from __future__ import annotations

from pathlib import Path

import pytest
from langchain_sidr import SiDRRetriever

from sidr_rag import FileReadError, IndexFormatError


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "birds.txt").write_text("Falcons hunt by day. " * 40, encoding="utf-8")
    (folder / "metals.md").write_text("# Metals\n\nCopper conducts electricity.\n", encoding="utf-8")
    (folder / "broken.jsonl").write_text("{not json\n", encoding="utf-8")
    (folder / ".hidden.txt").write_text("A secret.", encoding="utf-8")
    return folder


def test_a_folder_becomes_documents(files: Path) -> None:
    retriever = SiDRRetriever.from_folder(files, max_tokens=40, overlap=5, k=2)
    (copper, *_) = retriever.invoke("Which metal conducts?")
    assert "Copper conducts electricity." in copper.page_content
    assert copper.metadata["kind"]
    assert Path(copper.metadata["source"]).name == "metals.md"
    report = retriever.file_report
    assert report is not None
    assert {Path(path).name for path, _ in report.loaded} == {"birds.txt", "metals.md"}
    assert report.n_passages == len(retriever.engine) > 2
    assert {Path(path).name for path, _ in report.failed} == {"broken.jsonl"}
    assert ".hidden.txt" in {Path(path).name for path, _ in report.skipped}


def test_a_folder_into_a_store_on_disk(files: Path, tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    retriever = SiDRRetriever.from_folder(
        files, path=tmp_path / "store", on_file=lambda path, n: seen.__setitem__(Path(path).name, n), k=1
    )
    assert seen["metals.md"] == 1
    retriever.close()
    reopened = SiDRRetriever.open(tmp_path / "store", k=1)
    assert reopened.file_report is None
    assert Path(reopened.invoke("copper")[0].metadata["source"]).name == "metals.md"
    with pytest.raises(IndexFormatError, match="overwrite=True"):
        SiDRRetriever.from_folder(files, path=tmp_path / "store")


def test_a_single_file_and_a_missing_one(files: Path, tmp_path: Path) -> None:
    assert len(SiDRRetriever.from_folder(files / "metals.md").engine) == 1
    assert len(SiDRRetriever.from_folder([files / "metals.md", files / "birds.txt"]).invoke("falcons")) > 0
    with pytest.raises(FileReadError, match="nowhere"):
        SiDRRetriever.from_folder(tmp_path / "nowhere")


def test_an_empty_folder_gives_an_empty_retriever(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    retriever = SiDRRetriever.from_folder(tmp_path / "empty")
    assert retriever.invoke("anything") == []
