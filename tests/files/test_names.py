from __future__ import annotations

import pytest

from sidr_rag.files.names import file_refusal, folder_refusal


@pytest.mark.parametrize(
    "name",
    [
        *("id_rsa", "id_rsa.txt", "ID_ED25519", "server.pem", "server.pem.txt", "tls.key", "a.p12", "b.PFX", ".env"),
        *(".env.local", "prod.env", ".netrc", "_netrc", "credentials", "credentials.csv", "Credentials-2024.json"),
        *("passwords.csv", "secrets.md", "vault.kdbx", "service-account-1.json"),
    ],
)
def test_keys_and_passwords(name):
    assert file_refusal(name) == "named like a file of keys or passwords"


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "keyboard.md", "environment.md", "secret-garden.txt", "monkey.html", "a.b.c.d.e.csv", "key.md"],
)
def test_ordinary_names(name):
    assert file_refusal(name) is None


def test_hidden_and_lock_files():
    assert file_refusal(".notes.txt") == "a hidden file"
    assert file_refusal("~$letter.docx") == "a lock file of an office program"
    assert file_refusal("bad\udcff.txt") == "its name is not valid UTF-8"


@pytest.mark.parametrize("name", [".git", ".venv", "node_modules", "__pycache__"])
def test_folders_left_alone(name):
    assert folder_refusal(name) is not None


def test_ordinary_folders():
    assert folder_refusal("docs") is None
    assert folder_refusal("git") is None
