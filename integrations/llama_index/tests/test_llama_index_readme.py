"""Every code block of the adapter's README runs as written, in order."""

from __future__ import annotations

import re
from pathlib import Path

import llama_index.retrievers.sidr
import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")
def test_every_block_runs_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llama_index.vector_stores.qdrant")
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
    assert out.count("The heart pumps blood") == 2
    assert "['us']" in out
    assert "Refunds take 14 days." in out
    assert "The library opens at ten." in out
    assert "The greenhouse is watered at seven." in out
    assert "garden.md#0" in out
    assert ran == 8


def test_every_public_name_is_told() -> None:
    text = README.read_text(encoding="utf-8")
    names = [name for name in llama_index.retrievers.sidr.__all__ if not name.startswith("__")]
    assert [name for name in names if f"`{name}`" not in text] == []
    assert all(hasattr(llama_index.retrievers.sidr, name) for name in names)
