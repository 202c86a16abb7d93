"""Every code block of the README runs as written, in order, and what it refers to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEST_COMMAND = ".venv/bin/python -m pytest -n 2 --dist loadfile"
# These need a network or are this test run itself; the tests below check that they say what is true.
NOT_RUN_HERE = ("pip install ", "make ", TEST_COMMAND)
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text=README):
    """(language, code, number of the line before it) of each fenced block."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match[1], match[2], text.count("\n", 0, match.start()) + 1


def commands(prefix):
    lines = [line for language, code, _ in blocks() if language == "bash" for line in code.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if line.startswith(prefix)]


def run_shell(code, cwd):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_block_runs_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    ran = {"python": 0, "bash": 0}
    for language, code, line in blocks():
        if language == "python":
            # Empty lines in front, so that a traceback names the README's own line.
            exec(compile("\n" * line + code, str(ROOT / "README.md"), "exec"), namespace)
        elif language == "bash":
            if all(c.startswith(NOT_RUN_HERE) for c in code.splitlines() if c):
                continue
            done = run_shell(code, tmp_path)
            assert done.returncode == 0, f"README.md:{line}: {done.stderr}"
            assert "greenhouse is watered at six" in done.stdout
        else:
            assert language == "bibtex", f"README.md:{line}: a block in {language!r} that nothing runs"
            continue
        ran[language] += 1
    out = capsys.readouterr().out
    assert "Copper conducts electricity." in out
    assert "returns" in out
    assert ran["python"] >= 7
    assert ran["bash"] >= 1


def test_the_first_example_has_five_lines():
    first = next(code for language, code, _ in blocks() if language == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 5


@pytest.mark.parametrize("place", ["Makefile", ".ci/run"])
def test_the_test_command_is_the_one_that_is_used(place):
    assert commands(TEST_COMMAND) == [TEST_COMMAND]
    lines = [line.strip() for line in (ROOT / place).read_text(encoding="utf-8").splitlines()]
    assert TEST_COMMAND in lines


def test_make_targets_exist():
    named = commands("make ")
    assert named
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in named:
        for target in command.split()[1:]:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), command


def test_pip_installs_name_distributions_and_extras_of_this_repository():
    manifests = [ROOT / "pyproject.toml", *sorted((ROOT / "integrations").glob("*/pyproject.toml"))]
    texts = {}
    for manifest in manifests:
        text = manifest.read_text(encoding="utf-8")
        texts[re.search(r'^name = "([\w-]+)"', text, re.MULTILINE)[1]] = text
    assert commands("pip install ")
    for command in commands("pip install "):
        for name, extras in re.findall(
            r"'?([\w-]+)(?:\[([\w,-]+)\])?'?$", command.removeprefix("pip install ").strip()
        ):
            assert name in texts
            for extra in filter(None, extras.split(",")):
                assert re.search(rf"^{extra} = \[", texts[name], re.MULTILINE), extra


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not re.match(r"\w+:", target):
            assert (page.parent / target).exists(), target
