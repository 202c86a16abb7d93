from __future__ import annotations

import os
import stat
import sys

import pytest

from sidr_rag.errors import FileReadError
from sidr_rag.files import Limits
from sidr_rag.files.opening import open_regular, read_bytes


def test_text_is_kept_exactly(load_file):
    text = "first line\r\n\r\n  second\tline \n漢字 😀 \x0c end"
    sections, faults = load_file("a.txt", text)
    assert [section.text for section in sections] == [text]
    assert faults == []


def test_byte_order_mark_is_not_text(load_file):
    sections, _ = load_file("a.txt", b"\xef\xbb\xbfhello")
    assert sections[0].text == "hello"


def test_utf16_with_lone_surrogate(load_file):
    sections, _ = load_file("a.txt", b"\xff\xfe" + "ok ".encode("utf-16-le") + b"\x00\xd8" + "x".encode("utf-16-le"))
    assert sections[0].text.startswith("ok ")


def test_damage_is_reported(load_file):
    sections, faults = load_file("a.txt", "é".encode() * 100 + b" \xff")
    assert sections[0].text.endswith("é \ufffd")
    assert faults == ["1 places are not valid UTF-8 and were replaced by U+FFFD"]


def test_binary_is_refused(load_file):
    with pytest.raises(FileReadError, match="not a text file"):
        load_file("a.txt", b"\x00\x01\x02\x03" * 100)


def test_size_limit(load_file):
    with pytest.raises(FileReadError, match="11 bytes, more than max_file_bytes=10"):
        load_file("a.txt", "x" * 11, Limits(max_file_bytes=10))


def test_link_in_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    (tmp_path / "a.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        read_bytes(tmp_path / "a.txt", Limits())


def test_pipe_in_place_of_the_file_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(FileReadError, match="not a regular file"):
        open_regular(tmp_path / "a.txt", Limits())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_endless_file_of_size_zero_is_cut_off(tmp_path):
    from pathlib import Path

    path = Path("/proc/self/smaps")
    if not path.exists() or stat.S_ISREG(path.stat().st_mode) is False:
        pytest.skip("no such file here")
    with pytest.raises(FileReadError, match="max_file_bytes=10"):
        read_bytes(path, Limits(max_file_bytes=10))
