from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sidr_rag.errors import FileReadError, InvalidTypeError
from sidr_rag.files import Limits
from sidr_rag.files.walk import walk


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    return root


def listed(*paths, limits: Limits | None = None, root: Path | None = None):
    found = walk(list(paths), limits or Limits())
    return [(str(path.relative_to(root)) if root else path, reason) for path, reason in found]


def test_order_is_fixed(tmp_path):
    tree(tmp_path, "b.txt", "a/z.md", "a/b/c.csv", "a.txt", "c/d.pdf")
    assert listed(tmp_path, root=tmp_path) == [
        ("a/b/c.csv", None),
        ("a/z.md", None),
        ("a.txt", None),
        ("b.txt", None),
        ("c/d.pdf", None),
    ]


def test_left_out_with_reasons(tmp_path):
    tree(
        tmp_path, ".git/config.txt", ".hidden.txt", "node_modules/x.md", "id_rsa.txt", "photo.jpg", "Makefile", "ok.TXT"
    )
    assert listed(tmp_path, root=tmp_path) == [
        (".git", "a hidden folder"),
        (".hidden.txt", "a hidden file"),
        ("Makefile", "unsupported kind (no ending)"),
        ("id_rsa.txt", "named like a file of keys or passwords"),
        ("node_modules", "a folder of generated or installed files"),
        ("ok.TXT", None),
        ("photo.jpg", "unsupported kind '.jpg'"),
    ]


def test_explicit_names_follow_the_same_rules(tmp_path):
    tree(tmp_path, ".env", ".notes.txt", "a.xyz", ".git/a.txt", "ok.txt")
    paths = [tmp_path / name for name in (".env", ".notes.txt", "a.xyz", ".git", "ok.txt")]
    assert [reason for _, reason in listed(*paths)] == [
        "named like a file of keys or passwords",
        "a hidden file",
        "unsupported kind '.xyz'",
        "a hidden folder",
        None,
    ]


def test_hidden_parents_do_not_matter(tmp_path, monkeypatch):
    tree(tmp_path, ".vault/notes/a.txt")
    assert listed(tmp_path / ".vault" / "notes", root=tmp_path) == [(".vault/notes/a.txt", None)]
    monkeypatch.chdir(tmp_path / ".vault")
    assert listed(".", root=tmp_path) == [(".vault/notes/a.txt", None)]


def test_links_in_folders_are_reported_not_followed(tmp_path):
    outside = tree(tmp_path / "outside", "secret.txt")
    root = tree(tmp_path / "root", "a.txt", "sub/b.txt", ".env")
    (root / "out.txt").symlink_to(outside / "secret.txt")
    (root / "outdir").symlink_to(outside)
    (root / "in.txt").symlink_to(root / "a.txt")
    (root / "env.txt").symlink_to(root / ".env")
    (root / "sub" / "up").symlink_to(root)
    (root / "lost.txt").symlink_to(root / "nothing")
    (root / "loop.txt").symlink_to(root / "loop.txt")
    found = dict(listed(root, root=root))
    assert [name for name, reason in found.items() if reason is None] == ["a.txt", "sub/b.txt"]
    assert found["out.txt"] == found["outdir"] == "a link out of the folder"
    assert found["in.txt"] == found["env.txt"] == found["sub/up"] == "a link to a place in the same folder"
    assert found["lost.txt"] == "a link to nothing"
    assert found["loop.txt"] == "a link that leads to itself"


def test_named_links_are_followed_but_not_to_what_is_left_alone(tmp_path):
    tree(tmp_path, "a.txt", ".env", "docs/b.txt")
    (tmp_path / "l.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "e.txt").symlink_to(tmp_path / ".env")
    (tmp_path / "d").symlink_to(tmp_path / "docs")
    assert listed(tmp_path / "l.txt", tmp_path / "e.txt", tmp_path / "d", root=tmp_path) == [
        ("a.txt", None),
        (".env", "named like a file of keys or passwords"),
        ("docs/b.txt", None),
    ]


def test_special_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        old = Path.cwd()
        os.chdir(tmp_path)
        try:
            server.bind("s.txt")
        finally:
            os.chdir(old)
        assert listed(tmp_path, root=tmp_path) == [("pipe.txt", "not a regular file"), ("s.txt", "not a regular file")]
        assert listed(tmp_path / "pipe.txt")[0][1] == "not a regular file"


def test_size_limit(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * 2000)
    assert listed(tmp_path, limits=Limits(max_file_bytes=1999))[0][1] == "2,000 bytes, more than max_file_bytes=1,999"
    assert listed(tmp_path, limits=Limits(max_file_bytes=2000))[0][1] is None


def test_number_limit(tmp_path):
    tree(tmp_path, "a.txt", "b.txt", "c.jpg", "d.txt", "e.txt")
    assert listed(tmp_path, limits=Limits(max_files=2), root=tmp_path) == [
        ("a.txt", None),
        ("b.txt", None),
        ("c.jpg", "unsupported kind '.jpg'"),
        ("d.txt", "more than max_files=2 files; this one and all after it"),
    ]


def test_file_reached_twice_is_read_once(tmp_path):
    tree(tmp_path, "a.txt", "sub/b.txt")
    assert listed(tmp_path / "sub" / "b.txt", tmp_path, tmp_path / "." / "a.txt", root=tmp_path) == [
        ("sub/b.txt", None),
        ("a.txt", None),
    ]


def test_missing_path_is_an_error_before_anything_is_listed(tmp_path):
    tree(tmp_path, "a.txt")
    with pytest.raises(FileReadError, match=r"no such file or folder: '.*nothing.txt'"):
        walk([tmp_path / "a.txt", tmp_path / "nothing.txt"], Limits())


def test_impossible_paths(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", "a\0b", "x" * 5000):
        with pytest.raises(FileReadError, match="cannot look up"):
            walk([path], Limits())


@pytest.mark.parametrize("paths", [b"a", [b"a"], 7, [None], None])
def test_wrong_types(paths):
    with pytest.raises(InvalidTypeError, match=r"paths must hold strings or os\.PathLike objects, got"):
        walk(paths, Limits())


def test_one_path_alone(tmp_path):
    tree(tmp_path, "a.txt")
    assert list(walk(str(tmp_path / "a.txt"), Limits())) == list(walk(tmp_path / "a.txt", Limits()))
    assert list(walk([], Limits())) == []


def test_deep_folders(tmp_path):
    path = tmp_path
    for _ in range(300):
        path = path / "d"
    path.mkdir(parents=True)
    (path / "a.txt").write_text("x", encoding="utf-8")
    assert [reason for _, reason in listed(tmp_path)] == [None]


def test_name_that_is_not_utf8(tmp_path):
    name = os.fsdecode(b"bad\xff.txt")
    try:
        (tmp_path / name).write_text("x", encoding="utf-8")
    except OSError:
        pytest.skip("this file system has no such names")
    assert listed(tmp_path)[0][1] == "its name is not valid UTF-8"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_folder(tmp_path):
    tree(tmp_path, "a/x.txt", "b.txt")
    (tmp_path / "a").chmod(0)
    try:
        assert listed(tmp_path, root=tmp_path) == [("a", "Permission denied"), ("b.txt", None)]
    finally:
        (tmp_path / "a").chmod(0o700)
