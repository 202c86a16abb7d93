import json
import os
import stat
import zlib

import numpy as np
import pytest

from sidr_rag.errors import IndexFormatError, StorageError
from sidr_rag.index.arrays import read_arrays, write_arrays

DTYPES = [np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64, np.float16, np.float32]


def header_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_raw(path, header, body, head_size=None):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(head) if head_size is None else head_size).to_bytes(8, "little") + head + body)


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "a.seg"
    write_arrays(path, {"x": np.arange(5, dtype=np.uint16), "y": np.arange(3, dtype=np.int64)}, {"format": "f"})
    return path


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 1, 7])
def test_round_trip_of_every_dtype(tmp_path, dtype, length):
    values = np.arange(length).astype(dtype)
    write_arrays(tmp_path / "a", {"v": values, "pad": np.ones(3, np.uint8)}, {"k": "é"})
    arrays, meta = read_arrays(tmp_path / "a")
    assert arrays["v"].dtype == dtype
    np.testing.assert_array_equal(arrays["v"], values)
    np.testing.assert_array_equal(arrays["pad"], [1, 1, 1])
    assert meta["k"] == "é"


def test_arrays_are_aligned_and_read_only(sample):
    arrays, _ = read_arrays(sample)
    assert all(a.flags.aligned for a in arrays.values())
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"][0] = 1


def test_safetensors_reads_the_same_file(sample):
    from safetensors.numpy import load_file

    np.testing.assert_array_equal(load_file(sample)["x"], np.arange(5))


def test_non_contiguous_arrays_are_written_whole(tmp_path):
    write_arrays(tmp_path / "a", {"v": np.arange(10, dtype=np.int32)[::2]}, {})
    np.testing.assert_array_equal(read_arrays(tmp_path / "a")[0]["v"], [0, 2, 4, 6, 8])


def test_file_is_private_and_alone(sample):
    assert stat.S_IMODE(sample.stat().st_mode) == 0o600
    assert [p.name for p in sample.parent.iterdir()] == ["a.seg"]


@pytest.mark.parametrize("keep", [0, 4, 9, 50])
def test_a_truncated_file_is_refused_by_name(sample, keep):
    sample.write_bytes(sample.read_bytes()[:keep])
    with pytest.raises(IndexFormatError, match=r"a\.seg"):
        read_arrays(sample)


def test_every_cut_and_every_flipped_byte_is_noticed(sample):
    data = sample.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for cut in range(len(data)):
        sample.write_bytes(data[:cut])
        with pytest.raises(IndexFormatError):
            read_arrays(sample)
    for i in range(8 + size, len(data)):
        sample.write_bytes(data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :])
        with pytest.raises(IndexFormatError, match="checksum"):
            read_arrays(sample)


def test_any_damage_to_the_header_is_an_error_of_ours_or_harmless(sample):
    data = sample.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for i in range(8 + size):
        for flip in (0x01, 0x20, 0x80):
            sample.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            try:
                arrays, _ = read_arrays(sample)
            except IndexFormatError:
                continue
            for name, expected in (("x", np.arange(5)), ("y", np.arange(3))):
                if name in arrays:
                    np.testing.assert_array_equal(arrays[name].view(arrays[name].dtype), expected)


@pytest.mark.parametrize(
    "size", [1 << 21, 2**63, 2**64 - 1], ids=["above the limit", "beyond the file", "all bits set"]
)
def test_an_oversized_header_is_refused(sample, size):
    sample.write_bytes(size.to_bytes(8, "little") + sample.read_bytes()[8:])
    with pytest.raises(IndexFormatError, match="header"):
        read_arrays(sample)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"5",
        b"{",
        b"\xff\xfe",
        b'{"x": 3}',
        b'{"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}',
        b'{"x": {"dtype": ["U8"], "shape": [1], "data_offsets": [0, 1]}}',
        b'{"__metadata__": 3}',
        b'{"__metadata__": [1]}',
        b"[" * 50_000,
    ],
)
def test_a_header_of_another_kind_is_refused(tmp_path, header):
    write_raw(tmp_path / "a", header, b"\0" * 8)
    with pytest.raises(IndexFormatError, match="header"):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [
        ([4], [0, 8]),
        ([8], [-8, 0]),
        ([8], [8, 16]),
        ([9], [0, 9]),
        ([2, 4], [0, 8]),
        ([8.0], [0, 8]),
        ([True], [0, 1]),
        (8, [0, 8]),
        ([8], [0]),
        ([-8], [8, 0]),
        ([2**70], [0, 2**70]),
    ],
)
def test_arrays_outside_the_file_are_refused(tmp_path, shape, offsets):
    body = b"\0" * 8
    entry = {"dtype": "U8", "shape": shape, "data_offsets": offsets}
    write_raw(tmp_path / "a", {"x": entry, "__metadata__": {"crc32.x": str(zlib.crc32(body))}}, body)
    with pytest.raises(IndexFormatError, match="fit"):
        read_arrays(tmp_path / "a")


def test_an_array_without_checksum_is_refused(sample):
    header, body = header_of(sample)
    del header["__metadata__"]["crc32.x"]
    write_raw(sample, header, body)
    with pytest.raises(IndexFormatError, match="checksum"):
        read_arrays(sample)


def test_links_folders_and_missing_files_are_refused(tmp_path, sample):
    (tmp_path / "link").symlink_to(sample)
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "missing"):
        with pytest.raises(IndexFormatError, match=name):
            read_arrays(tmp_path / name)


def test_a_disk_that_refuses_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a"
    write_arrays(path, {"x": np.zeros(1, np.uint8)}, {"state": "old"})

    def refuse(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError) as caught:
        write_arrays(path, {"x": np.ones(1, np.uint8)}, {"state": "new"})
    assert caught.value.errno == 28
    assert "a" in str(caught.value)
    monkeypatch.undo()
    assert read_arrays(path)[1]["state"] == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
