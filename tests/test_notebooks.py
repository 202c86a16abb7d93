"""The committed notebooks hold their outputs, and nothing of the machine that made them; nbmake runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FERRIES = ROOT / "notebooks" / "data" / "ferries"
NOISE = re.compile(r"/(home|root|tmp|work|usr|opt|Users)/|Warning|Traceback|\d s/it|it/s|\x1b\[")


def code_cells(path):
    return [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]


def test_there_are_five():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_cell_was_executed_in_order(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) / 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_outputs_hold_no_errors_paths_or_times(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}, "a cell has metadata, such as execution times: clear it"
    for cell in code_cells(path):
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name", "stdout") == "stdout"
            shown = dict(output.get("data", {}), text=output.get("text", ""))
            shown.pop("image/png", None)
            assert not NOISE.search(json.dumps(shown, ensure_ascii=False)), output


def test_the_handbook_is_whole():
    def ids(name):
        return [json.loads(line)["_id"] for line in (FERRIES / name).read_text(encoding="utf-8").splitlines()]

    passages, queries = ids("corpus.jsonl"), ids("queries.jsonl")
    assert len(passages) == len(set(passages)) == 100
    judged = {}
    for split in ("train", "dev", "test"):
        rows = [
            line.split("\t") for line in (FERRIES / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        ]
        judged[split] = [(query, passage) for query, passage, grade in rows[1:] if grade == "1"]
        assert len(judged[split]) == len(rows) - 1
    assert sorted(q for rows in judged.values() for q, _ in rows) == sorted(queries)
    # No passage that the test asks for was an answer in training.
    answers = {split: {p for _, p in rows} for split, rows in judged.items()}
    assert answers["train"] | answers["dev"] | answers["test"] == set(passages)
    assert not answers["test"] & (answers["train"] | answers["dev"])
