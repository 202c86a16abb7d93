from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time

import pytest

import sidr_rag.files.pdf as pdf_loader
from sidr_rag.errors import FileReadError, MissingExtraError
from sidr_rag.files import Limits
from sidr_rag.files.pdf_worker import read_pages

fpdf = pytest.importorskip("fpdf")
pypdf = pytest.importorskip("pypdf")


def document(*pages: str, title: str = "") -> bytes:
    pdf = fpdf.FPDF()
    pdf.set_font("Helvetica", size=12)
    if title:
        pdf.set_title(title)
    for text in pages:
        pdf.add_page()
        if text:
            pdf.multi_cell(0, 8, text)
    return bytes(pdf.output())


def encrypted(user: str, owner: str, algorithm: str = "RC4-128") -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(document("hidden words")))
    writer.encrypt(user, owner, algorithm=algorithm)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def worker(code: str):
    return lambda limits: [sys.executable, "-c", code]


def test_one_section_per_page_with_text(load_file):
    sections, faults = load_file("a.pdf", document("First page.", "", "Third page.", title="The  Paper"))
    assert [(section.text.strip(), dict(section.metadata), section.title) for section in sections] == [
        ("First page.", {"page": 1, "title": "The Paper"}, "The Paper"),
        ("Third page.", {"page": 3, "title": "The Paper"}, "The Paper"),
    ]
    assert faults == []


def test_scan_has_no_sections(load_file):
    assert load_file("a.pdf", document("", "")) == ([], [])


def test_password_is_reported(load_file):
    with pytest.raises(FileReadError, match=r"^encrypted$"):
        load_file("a.pdf", encrypted("secret", "owner"))


def test_protection_against_changes_only_is_no_obstacle(load_file):
    sections, _ = load_file("a.pdf", encrypted("", "owner"))
    assert sections[0].text.strip() == "hidden words"


def test_page_limit(load_file):
    with pytest.raises(FileReadError, match="3 pages, more than max_pages=2"):
        load_file("a.pdf", document("a", "b", "c"), Limits(max_pages=2))


def test_text_limit(load_file):
    with pytest.raises(FileReadError, match="more text than max_decompressed_bytes=20"):
        load_file("a.pdf", document("many words " * 10), Limits(max_decompressed_bytes=20))


@pytest.mark.parametrize("data", [b"", b"not a pdf", b"%PDF-1.7\n" + bytes(500), document("x" * 50)[:300]])
def test_damaged_files(load_file, data):
    with pytest.raises(FileReadError, match="not a readable PDF"):
        load_file("a.pdf", data)


def test_bad_page_is_reported_and_the_rest_is_kept(monkeypatch):
    original = pypdf.PageObject.extract_text

    def sometimes(self, *args, **kwargs):
        if self.page_number == 1:
            raise ValueError("words of the page")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(pypdf.PageObject, "extract_text", sometimes)
    messages = list(read_pages(io.BytesIO(document("one", "two", "three")), 10, 1000))
    assert [message.get("page") for message in messages] == [1, None, 3, None]
    assert messages[1] == {"fault": "page 2: could not be read (ValueError)"}
    assert messages[-1] == {"done": True}


def test_hanging_reader_is_stopped(load_file, monkeypatch, tmp_path):
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    monkeypatch.setattr(pdf_loader, "command", worker(code))
    begun = time.monotonic()
    with pytest.raises(FileReadError, match="took longer than pdf_timeout_s=1"):
        load_file("a.pdf", document("x"), Limits(pdf_timeout_s=1))
    assert time.monotonic() - begun < 150
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text(encoding="utf-8")), 0)


def test_real_reader_keeps_the_time_limit(load_file):
    with pytest.raises(FileReadError, match=r"pdf_timeout_s=0\.01"):
        load_file("a.pdf", document("x"), Limits(pdf_timeout_s=0.01))


def test_reader_that_dies_keeps_the_pages_it_gave(monkeypatch, tmp_path):
    code = 'import os; os.write(1, b\'{"page": 1, "text": "kept"}\\n{"pa\'); os.kill(os.getpid(), 9)'
    monkeypatch.setattr(pdf_loader, "command", worker(code))
    (tmp_path / "a.pdf").write_bytes(b"x")
    sections = pdf_loader.load(tmp_path / "a.pdf", Limits(), pytest.fail)
    assert next(sections).text == "kept"
    with pytest.raises(FileReadError, match="stopped early"):
        next(sections)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not keep the limit")
def test_memory_limit(tmp_path):
    code = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); import sidr_rag.files.pdf_worker as w;"
        "w.read_pages = lambda *a: iter([{'n': len(bytearray(1 << 31))}]);"
        "w.main(dict(max_pages=1, max_chars=1, memory_bytes=500_000_000, cpu_s=60))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(sys.path)], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == {"error": "needs more memory than pdf_memory_bytes allows"}


def test_worker_imports_no_numpy():
    code = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); import sidr_rag.files.pdf_worker;"
        "print([name for name in ('numpy', 'numba', 'torch', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(sys.path)], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_modules_beside_the_document_are_not_imported(load_file, monkeypatch, tmp_path):
    (tmp_path / "pypdf.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    sections, _ = load_file("a.pdf", document("fine"))
    assert sections[0].text.strip() == "fine"


def test_missing_package_names_the_extra(load_file, monkeypatch):
    monkeypatch.setattr(pdf_loader, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"PDF files needs the package 'pypdf'"):
        load_file("a.pdf", document("x"))
