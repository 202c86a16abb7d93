"""Every code block of the adapter's README runs as written, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_every_block_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "readme"}
    ran = 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, code = match[1], match[2]
        if language == "bash":
            assert all(line.startswith("pip install ") for line in code.splitlines())
            continue
        assert language == "python"
        # Empty lines in front, so that a traceback names the README's own line.
        exec(compile("\n" * text.count("\n", 0, match.start(2)) + code, str(README), "exec"), namespace)
        ran += 1
    out = capsys.readouterr().out
    assert "The heart pumps blood" in out
    assert "At seven [1]." in out
    assert "garden.md#0" in out
    assert ran >= 8


def test_every_public_name_is_told() -> None:
    import langchain_sidr

    text = README.read_text(encoding="utf-8")
    assert [name for name in langchain_sidr.__all__ if not name.startswith("__") and f"`{name}`" not in text] == []
    assert all(hasattr(langchain_sidr, name) for name in langchain_sidr.__all__)
    with pytest.raises(AttributeError, match="SiDRGraph"):
        _ = langchain_sidr.SiDRGraph
