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


def test_a_folder_kept_in_step(files: Path, tmp_path: Path) -> None:
    retriever = SiDRRetriever.from_folder(files, path=tmp_path / "store", k=2)
    (files / "metals.md").write_text("# Metals\n\nSilver conducts best.\n", encoding="utf-8")
    (files / "birds.txt").unlink()
    (files / "new.txt").write_text("Rivers run to the sea.", encoding="utf-8")
    report = retriever.sync_folder(files)
    assert {Path(i).name for i in report.written} == {"metals.md#0", "new.txt#0"}
    assert len(report.removed) >= 1
    assert {Path(path).name for path, _ in report.failed} == {"broken.jsonl"}
    assert [d.page_content for d in retriever.invoke("silver", k=1)] == ["Silver conducts best."]
    for gone in ("copper", "falcons"):
        assert retriever.invoke(gone, first_stage="lexical") == []
    retriever.close()
    assert len(SiDRRetriever.open(tmp_path / "store").engine) == 2


def test_files_added_by_hand(files: Path) -> None:
    retriever = SiDRRetriever.from_texts(["A note."], ids=["note"])
    seen: list[str] = []
    report = retriever.add_files([files / "metals.md"], max_tokens=40, on_file=lambda path, n: seen.append(path))
    assert report.written == [f"{files}/metals.md#0"]
    assert seen == [str(files / "metals.md")]
    assert retriever.add_files(files / "metals.md", max_tokens=40).unchanged == 1
    assert retriever.engine.ids() == ["note", f"{files}/metals.md#0"]


def test_offsets_and_the_union_of_documents(files: Path) -> None:
    text = "".join(f"Paragraph {i}: the same words again. Naïve café \u2014 done.\n\n" for i in range(40))
    (files / "long.txt").write_text(text, encoding="utf-8")
    for overlap in (0, 10):
        retriever = SiDRRetriever.from_folder(files / "long.txt", max_tokens=50, overlap=overlap)
        covered: set[int] = set()
        for document in retriever.get_by_ids(retriever.engine.ids()):
            start = document.metadata["start"]
            assert text[start : start + len(document.page_content)] == document.page_content
            covered.update(range(start, start + len(document.page_content)))
        assert "".join(c for i, c in enumerate(text) if i not in covered).strip() == ""


async def test_async_twins(files: Path) -> None:
    retriever = SiDRRetriever.from_texts([])
    assert len((await retriever.aadd_files(files / "metals.md")).written) == 1
    (files / "metals.md").unlink()
    assert len((await retriever.async_folder(files)).removed) == 1
    assert await retriever.ainvoke("copper", first_stage="lexical") == []
