from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidr_rag.errors import FileReadError, InvalidInputError, InvalidTypeError
from sidr_rag.files import FileReport, Limits, read_passages

WORDS = ("retrieval", "over", "a", "binary", "bag", "of", "tokens", "index", "needs", "no", "model", "to", "build", ".")


def prose(n_words: int) -> str:
    return " ".join(WORDS[i % len(WORDS)] for i in range(n_words))


@pytest.fixture
def read(files_tokenizer):
    def run(paths, **options):
        report = FileReport()
        return list(read_passages(paths, tokenizer=files_tokenizer, report=report, **options)), report

    return run


def test_ids_metadata_and_offsets(read, tmp_path):
    text = prose(500)
    path = tmp_path / "notes on it.txt"
    path.write_text(text, encoding="utf-8")
    passages, report = read(path, max_tokens=50)
    source = path.resolve().as_posix()
    assert len(passages) > 5
    assert [passage.id for passage in passages] == [f"{source}#{n}" for n in range(len(passages))]
    for passage in passages:
        start = passage.metadata["start"]
        assert passage.metadata == {"source": source, "kind": "txt", "start": start}
        assert text[start : start + len(passage.text)] == passage.text
        assert passage.title == "notes on it"
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join(text.split())
    assert report == FileReport(loaded=[(source, len(passages))])
    assert report.n_passages == len(passages)


def test_no_passage_has_too_many_tokens(read, files_tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text(prose(300) + " " + "x" * 5000 + " 漢字" * 100, encoding="utf-8")
    passages, _ = read(tmp_path, max_tokens=40)
    assert max(len(files_tokenizer.sequence_ids(passage.text)) for passage in passages) <= 40


def test_overlap(read, tmp_path):
    (tmp_path / "a.txt").write_text(prose(300), encoding="utf-8")
    starts = [passage.metadata["start"] for passage in read(tmp_path, max_tokens=40, overlap=10)[0]]
    ends = [p.metadata["start"] + len(p.text) for p in read(tmp_path, max_tokens=40, overlap=10)[0]]
    assert all(start < end for start, end in zip(starts[1:], ends, strict=False))


def test_sections_titles_and_numbering(read, tmp_path):
    (tmp_path / "guide.md").write_text("intro\n# A\n" + prose(100) + "\n## B\nb text\n", encoding="utf-8")
    passages, _ = read(tmp_path, max_tokens=60)
    assert [passage.title for passage in passages] == ["guide", "A", "A", "A > B"]
    assert [passage.id.rpartition("#")[2] for passage in passages] == ["0", "1", "2", "3"]
    assert passages[0].metadata["start"] == 0
    assert "section" not in passages[0].metadata
    assert passages[3].metadata["section"] == "A > B"
    assert passages[2].metadata["start"] > 0


def test_records_keep_their_ids(read, tmp_path):
    lines = [
        {"id": "doc-1", "title": "T", "text": "short", "source": "somewhere", "year": 2001},
        {"id": "doc-2", "text": prose(100)},
        {"text": "no id"},
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    passages, _ = read(path, max_tokens=60)
    source = path.as_posix()
    assert [passage.id for passage in passages] == ["doc-1", "doc-2", "doc-2#1", f"{source}#3"]
    assert passages[0].metadata == {
        "source": source,
        "kind": "jsonl",
        "field_source": "somewhere",
        "year": 2001,
        "record_id": "doc-1",
        "start": 0,
    }
    assert [passage.title for passage in passages] == ["T", None, None, None]
    assert passages[2].metadata["record_id"] == "doc-2"


def test_pdf_pages(read, tmp_path):
    fpdf = pytest.importorskip("fpdf")
    pytest.importorskip("pypdf")
    pdf = fpdf.FPDF()
    pdf.set_font("Helvetica", size=12)
    for text in ("first page words", "", "third page words"):
        pdf.add_page()
        pdf.multi_cell(0, 8, text or " ")
    pdf.output(str(tmp_path / "paper.pdf"))
    scan = fpdf.FPDF()
    scan.add_page()
    scan.output(str(tmp_path / "scan.pdf"))
    passages, report = read(tmp_path)
    assert [(passage.metadata["page"], passage.metadata["kind"], passage.title) for passage in passages] == [
        (1, "pdf", "paper"),
        (3, "pdf", "paper"),
    ]
    assert report.skipped == [((tmp_path / "scan.pdf").as_posix(), "no text (a scan?)")]


def test_one_bad_file_does_not_stop_the_rest(read, tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "b.docx").write_bytes(b"no archive")
    (tmp_path / "c.pdf").write_bytes(b"no pdf")
    (tmp_path / "d.jsonl").write_text('{"text": "kept"}\nbroken\n', encoding="utf-8")
    (tmp_path / "e.txt").write_text("", encoding="utf-8")
    (tmp_path / "f.txt").write_text(" \r\n\t\n", encoding="utf-8")
    (tmp_path / "g.jpg").write_bytes(b"x")
    (tmp_path / "h.md").write_text("also kept", encoding="utf-8")
    seen: list[tuple[str, int]] = []
    passages, report = read(tmp_path, on_file=lambda path, n: seen.append((Path(path).name, n)))
    assert [passage.text for passage in passages] == ["kept", "also kept"]
    assert [(Path(path).name, n) for path, n in report.loaded] == [("d.jsonl", 1), ("h.md", 1)]
    assert [(Path(path).name, reason) for path, reason in report.skipped] == [
        ("e.txt", "no text"),
        ("f.txt", "no text"),
        ("g.jpg", "unsupported kind '.jpg'"),
    ]
    assert [(Path(path).name, reason) for path, reason in report.failed] == [
        ("a.txt", "not a text file"),
        ("b.docx", "not a zip archive"),
        ("c.pdf", "not a readable PDF (PdfStreamError)"),
        ("d.jsonl", "line 2: not valid JSON at character 1"),
    ]
    assert [name for name, _ in seen] == ["a.txt", "b.docx", "c.pdf", "d.jsonl", "e.txt", "f.txt", "h.md"]


def test_file_that_vanishes_is_reported(files_tokenizer, tmp_path):
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    report = FileReport()
    passages = read_passages(tmp_path, tokenizer=files_tokenizer, report=report)
    assert next(passages).text == "a.txt"
    # The folder has been listed by now.
    (tmp_path / "b.txt").unlink()
    assert [passage.text for passage in passages] == ["c.txt"]
    [(path, reason)] = report.failed + report.skipped
    assert (path, reason) == ((tmp_path / "b.txt").as_posix(), "No such file or directory")


def test_file_that_vanishes_between_check_and_reading(read, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")

    def gone(*args, **kwargs):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "open", gone)
    _, report = read(tmp_path)
    assert report.failed == [((tmp_path / "a.txt").as_posix(), "No such file or directory")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_reported(read, tmp_path):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    (tmp_path / "a.txt").chmod(0)
    _, report = read(tmp_path)
    assert report.failed == [((tmp_path / "a.txt").as_posix(), "Permission denied")]


def test_missing_package_is_reported_per_file(read, tmp_path, monkeypatch):
    (tmp_path / "a.html").write_text("<p>x", encoding="utf-8")
    (tmp_path / "b.txt").write_text("kept", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "lxml.etree", None)
    passages, report = read(tmp_path)
    assert [passage.text for passage in passages] == ["kept"]
    assert "pip install 'sidr-rag[files]'" in report.failed[0][1]


def test_parser_that_breaks_down_is_reported_without_its_message(read, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    (tmp_path / "b.md").write_text("kept", encoding="utf-8")

    def broken(*args):
        raise RecursionError("words of the file")

    monkeypatch.setattr("sidr_rag.files.text.load", broken)
    passages, report = read(tmp_path)
    assert [passage.text for passage in passages] == ["kept"]
    assert report.failed == [((tmp_path / "a.txt").as_posix(), "cannot be read (RecursionError)")]


def test_error_of_the_caller_is_not_taken_for_a_bad_file(files_tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")

    def fails(path: str, n: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(read_passages(tmp_path, tokenizer=files_tokenizer, on_file=fails))


def test_large_metadata_is_left_out_and_reported(read, tmp_path):
    record = {"id": "1", "text": prose(2000), "small": "s", "large": "y" * 30_000}
    (tmp_path / "a.jsonl").write_text(json.dumps(record), encoding="utf-8")
    passages, report = read(tmp_path)
    assert all("large" not in passage.metadata and passage.metadata["small"] == "s" for passage in passages)
    assert [reason for _, reason in report.failed] == ["1 metadata fields left out, over max_metadata_chars=20,000"]


def test_faults_are_bounded(read, tmp_path):
    (tmp_path / "a.jsonl").write_text("x\n" * 5000, encoding="utf-8")
    _, report = read(tmp_path)
    assert len(report.failed) == 101
    assert report.failed[-1][1] == "and 4,900 more faults of this kind"


def test_everything_is_streamed(files_tokenizer, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"file {i}", encoding="utf-8")
    report = FileReport()
    passages = read_passages(tmp_path, tokenizer=files_tokenizer, report=report)
    assert next(passages).text == "file 0"
    assert report.loaded == []
    assert next(passages).text == "file 1"
    assert len(report.loaded) == 1


def test_reading_twice_gives_the_same(read, tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("z.txt", "b/a.md", "c.csv"):
        (tmp_path / name).write_text("h\n" + prose(300), encoding="utf-8")
    assert read(tmp_path)[0] == read([tmp_path])[0]


def test_lone_surrogates_and_nul(read, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a \\ud800 b \\u0000 c", "k": "\\udc00"}', encoding="utf-8")
    passages, report = read(tmp_path)
    assert [passage.text for passage in passages] == ["a \ud800 b \0 c"]
    assert report.failed == []


def test_arguments_are_checked_at_the_call(files_tokenizer, tmp_path):
    with pytest.raises(FileReadError, match="no such file"):
        read_passages(tmp_path / "nothing", tokenizer=files_tokenizer)
    with pytest.raises(InvalidInputError, match="max_tokens"):
        read_passages(tmp_path, tokenizer=files_tokenizer, max_tokens=0)
    with pytest.raises(InvalidInputError, match="overlap"):
        read_passages(tmp_path, tokenizer=files_tokenizer, max_tokens=5, overlap=5)
    with pytest.raises(InvalidTypeError, match="limits must be a Limits, got dict"):
        read_passages(tmp_path, tokenizer=files_tokenizer, limits={})  # type: ignore[arg-type]
    with pytest.raises(InvalidTypeError, match="report must be a FileReport, got list"):
        read_passages(tmp_path, tokenizer=files_tokenizer, report=[])  # type: ignore[arg-type]


def test_nothing_to_read(read, tmp_path):
    assert read([]) == ([], FileReport())
    assert read(tmp_path) == ([], FileReport())


def test_package_is_light_to_import():
    code = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); import sidr_rag.files;"
        "print([name for name in ('numpy', 'numba', 'pypdf', 'lxml', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(sys.path)], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_limits_reach_the_loaders(read, tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "x" * 50 + "\nshort\n", encoding="utf-8")
    passages, report = read(tmp_path, limits=Limits(max_record_chars=20))
    assert [passage.text for passage in passages] == ["short"]
    assert [reason for _, reason in report.failed] == ["line 2: longer than max_record_chars=20"]
