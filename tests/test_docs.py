"""Every code block of the documentation runs as written, page by page, and every page is in the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": page.stem}
    for match in CODE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] == "python":
            exec(compile("\n" * line + match[2], str(page), "exec"), namespace)
        else:
            # What nothing runs may only be an installation, which the README's tests check.
            assert match[1] == "bash", f"{name_of(page)}:{line}: a block in {match[1]!r}"
            assert all(c.startswith("pip install ") for c in match[2].splitlines()), f"{name_of(page)}:{line}"


def test_every_page_is_in_the_site():
    listed = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(name_of(page) for page in PAGES)
