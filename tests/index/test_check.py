"""A check finds what opening cannot notice, and leaves everything as it was."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from stub_encoders import stub_settings

from sidr_rag.cli import main
from sidr_rag.errors import IndexFormatError
from sidr_rag.index.check import check_store
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store


@pytest.fixture
def folder(tmp_path, tiny):
    """A store of 90 passages in two segments, ten of them deleted, five replaced."""
    path = tmp_path / "store"
    store = Store.create(path, stub_settings(tiny), tiny)
    store.add([Row(0, f"a{i}", None, f"amber {i}", '{"n":1}') for i in range(60)])
    store.add([Row(0, f"b{i}", "title", "coral", "{}") for i in range(40)])
    store.delete([f"a{i}" for i in range(10)])
    store.add([Row(0, f"a{i}", None, "jade", "{}") for i in range(10, 15)])
    store.close()
    return path


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def files(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in path.rglob("*") if p.is_file() and not p.name.endswith("-shm")}


def test_a_whole_store(folder):
    before = files(folder)
    report = check_store(folder)
    assert report.ok
    assert report.passages == 90
    assert report.segments >= 1
    assert {name: data for name, data in files(folder).items() if not name.endswith("-wal")} == before


def test_an_empty_store(tmp_path, tiny):
    Store.create(tmp_path / "s", stub_settings(tiny), tiny).close()
    report = check_store(str(tmp_path / "s"))
    assert (report.ok, report.passages, report.segments) == (True, 0, 0)


def test_a_folder_that_is_no_store(tmp_path):
    with pytest.raises(IndexFormatError, match=r"sidr\.json"):
        check_store(tmp_path)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE passages SET text = X'616d626572' WHERE id = X'6233'", "does not match its checksum"),
        ("UPDATE passages SET metadata = X'7b7d' WHERE id = X'613230'", "does not match its checksum"),
        ("UPDATE passages SET title = NULL WHERE id = X'6233'", "does not match its checksum"),
        ("UPDATE passages SET text = 'amber' WHERE id = X'6233'", "does not match its checksum"),
        ("UPDATE passages SET seq = 5000 WHERE id = X'6233'", "does not match its checksum"),
        ("DELETE FROM passages WHERE id = X'6233'", "1 passages of the index are missing"),
        ("DELETE FROM segments", "passages are in no segment"),
        ("DELETE FROM tombstones", None),
    ],
)
def test_damage_that_cannot_be_made_good(folder, statement, found):
    if found is None:
        edit(folder / "passages.db", "INSERT INTO tombstones SELECT max(seq) FROM passages")
        found = "1 passages are in no segment"
    else:
        edit(folder / "passages.db", statement)
    report = check_store(folder)
    assert not report.ok
    assert any(found in fault and "passages.db" in fault for fault in report.damaged), report
    assert not any("amber" in fault or "coral" in fault for fault in report.damaged)


def test_many_faults_are_counted(folder):
    edit(folder / "passages.db", "UPDATE passages SET text = X'00'")
    report = check_store(folder)
    assert report.passages == 0
    assert sum("checksum" in fault for fault in report.damaged) == 20
    assert any("70 more" in fault for fault in report.damaged)


def test_damaged_pages(folder):
    data = bytearray((folder / "passages.db").read_bytes())
    (root,) = (
        sqlite3.connect(folder / "passages.db")
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'passages'")
        .fetchone()
    )
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    (folder / "passages.db").write_bytes(data)
    report = check_store(folder)
    assert report.passages == 0
    assert report.damaged
    assert all("passages.db" in fault for fault in report.damaged)


def test_derived_files_are_told_apart(folder):
    for path in (folder / "segments").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    (folder / "embeddings.db").write_bytes(b"no database" * 1000)
    report = check_store(folder)
    assert not report.damaged
    assert len(report.derived) == report.segments + 1
    assert any("embeddings.db" in fault for fault in report.derived)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(folder):
    folder.chmod(0o500)
    try:
        assert check_store(folder).ok
    finally:
        folder.chmod(0o700)


def test_the_command(folder, capsys):
    assert main(["check", "--store", str(folder)]) == 0
    assert "90 passages" in capsys.readouterr().out
    edit(folder / "passages.db", "UPDATE passages SET text = X'00' WHERE id = X'6233'")
    assert main(["check", "--store", str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["passages"] == 89
    assert len(report["damaged"]) == 1
