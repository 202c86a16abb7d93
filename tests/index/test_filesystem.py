"""Network file systems are known by the kernel's table of mounts, and a store on one is refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from stub_encoders import stub_settings

from sidr_rag.errors import StorageError
from sidr_rag.index import folder as folder_module
from sidr_rag.index.filesystem import network_type
from sidr_rag.index.store import Store

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/team rw,relatime - nfs4 server:/team rw,vers=4.2
31 30 8:2 / /mnt/team/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:42 / /mnt/bucket rw - fuse.s3fs s3fs rw
34 22 0:43 / /mnt/plain rw - fuse.ntfs-3g /dev/sdc1 rw
35 22 8:3 / /mnt/over rw - nfs server:/x rw
36 22 8:4 / /mnt/over rw - ext4 /dev/sdd1 rw
damaged line
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/store", None),
        ("/mnt/team/store", "nfs4"),
        ("/mnt/teammates/store", None),
        ("/mnt/team/local/store", None),
        ("/mnt/with space/store", "cifs"),
        ("/mnt/bucket", "fuse.s3fs"),
        ("/mnt/plain/store", None),
        ("/mnt/over/store", None),
    ],
)
def test_the_innermost_mount_decides(tmp_path, path, expected) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE, encoding="utf-8")
    assert network_type(Path(path), table) == expected


def test_nothing_is_known_without_a_table(tmp_path) -> None:
    assert network_type(Path("/mnt/team"), tmp_path / "none") is None


def test_this_folder_is_on_no_network(tmp_path) -> None:
    assert network_type(tmp_path) is None


def test_a_store_on_a_network_file_system_is_refused(tmp_path, tiny, monkeypatch) -> None:
    Store.create(tmp_path / "there", stub_settings(tiny), tiny).close()
    monkeypatch.setattr(folder_module, "network_type", lambda path: "nfs4")
    for call in (
        lambda: Store.create(tmp_path / "s", stub_settings(tiny), tiny),
        lambda: Store.open(tmp_path / "there", tiny),
        lambda: Store.open(tmp_path / "there", tiny, read_only=True),
    ):
        with pytest.raises(StorageError, match="nfs4") as caught:
            call()
        assert caught.value.errno == errno.ENOTSUP
        assert "local disk" in str(caught.value)
    assert not (tmp_path / "s").exists()
