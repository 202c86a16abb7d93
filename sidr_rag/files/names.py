"""Files and folders that are left alone because of their names."""

from __future__ import annotations

from fnmatch import fnmatchcase

_FOLDERS = frozenset(("node_modules", "__pycache__", "site-packages", "__macosx"))
_SECRETS = (
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore"),
    *("*.kdbx", "*.ppk", "*.pgp", "*.gpg", "*.env", "_netrc", "netrc", "htpasswd", "*.htpasswd"),
    *("credential", "credentials*", "credential.*", "secret.*", "secrets", "secrets.*", "passwd", "passwd.*"),
    *("password.*", "passwords", "passwords.*", "service-account*.json", "service_account*.json", "*.token"),
)


def folder_refusal(name: str) -> str | None:
    """Why a folder of this name is not entered; None if it is."""
    if name.startswith("."):
        return "a hidden folder"
    if name.lower() in _FOLDERS:
        return "a folder of generated or installed files"
    return _unencodable(name)


def file_refusal(name: str) -> str | None:
    """Why a file of this name is not read; None if its name is no obstacle. Supported kinds are not checked here."""
    lower = name.lower()
    # Endings are taken off one by one, so that "server.pem.txt" is known for what it is.
    stems = [lower]
    while (stem := stems[-1].rpartition(".")[0]) and len(stems) < 4:
        stems.append(stem)
    if lower.startswith((".env", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd")) or any(
        fnmatchcase(stem, pattern) for stem in stems for pattern in _SECRETS
    ):
        return "named like a file of keys or passwords"
    if name.startswith("."):
        return "a hidden file"
    if name.startswith("~$"):
        return "a lock file of an office program"
    return _unencodable(name)


def _unencodable(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return None
