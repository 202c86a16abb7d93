"""`sidr-rag eval`, called as a user calls it."""

import json
import sys

import pytest

from sidr_rag.cli import main
from sidr_rag.eval import read_qrels, read_run

FAST = ["--search", "bot,bm25", "--measures", "nDCG@10,RR@10"]


def test_tables_files_and_comparisons(beir, tmp_path, capsys):
    runs, values, tables = tmp_path / "runs", tmp_path / "out.json", tmp_path / "out.md"
    arguments = ["--search", "bot,bm25,bm25-wordpiece", "--compare", "bm25,bot", "--compare", "bot,bm25-wordpiece"]
    outputs = ["--runs", str(runs), "--json", str(values), "--markdown", str(tables)]
    assert main(["eval", str(beir), *arguments, *outputs]) == 0
    shown = capsys.readouterr().out
    assert "small (test): 3 queries, 5 passages" in shown
    assert "bm25-wordpiece" in shown
    assert "Success(answers)@20" in shown
    assert "bm25 - bot" in shown
    (report,) = json.loads(values.read_text(encoding="utf-8"))
    assert report["searches"]["bm25"]["measures"]["RR@10"] == 1
    assert report["searches"]["bm25"]["cost"]["texts"] == 0
    assert len(report["comparisons"]) == 2 * 7
    assert "| bm25 | 1.0000 |" in tables.read_text(encoding="utf-8")
    assert [p for p, _ in read_run(runs / "small.test.bm25.run")["q3"]] == ["metal"]
    assert read_qrels(runs / "small.test.qrels")["q2"] == {"bread": 2, "metal": 0}
    # What was written is measured alike when it is read again.
    assert main(["eval", str(beir), *FAST, "--run", str(runs / "small.test.bm25.run"), "--json", str(values)]) == 0
    (again,) = json.loads(values.read_text(encoding="utf-8"))
    read = again["searches"]["small.test.bm25"]
    assert read["per_query"] == again["searches"]["bm25"]["per_query"]
    assert "cost" not in read


def test_several_datasets_have_a_mean(beir, dpr, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    for path in beir.rglob("*.*"):
        target = other / path.relative_to(beir)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    assert main(["eval", str(beir), str(other), *FAST]) == 0
    shown = capsys.readouterr().out
    assert "nDCG@10 on every dataset" in shown
    assert "mean" in shown
    assert main(["eval", str(dpr), "--search", "bot,bm25"]) == 0
    assert "nq-test (all): 3 queries, 3 passages" in capsys.readouterr().out


def test_the_model_is_used_and_the_store_kept(beir, tmp_path, capsys):
    store = tmp_path / "kept"
    arguments = ["eval", str(beir), "--search", "beta,late,theta:lex", "--rerank", "2,3", "--store", str(store)]
    assert main([*arguments, "--split", "test", "--limit-queries", "2"]) == 0
    shown = capsys.readouterr().out
    assert "late@2" in shown
    assert "late@3" in shown
    # Every passage for V_theta, and the candidates of late search for the dense head and for tokens.
    assert "13 passages read by the model" in shown
    assert (store / "small" / "embeddings.db").is_file()
    assert main([*arguments, "--split", "test", "--limit-queries", "2"]) == 0
    assert "passages read by the model" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--split", "train"], "split='train'"),
        (["--search", "betta"], "'betta' is not known"),
        (["--measures", "foo@3"], "'foo@3' is not known"),
        (["--compare", "bm25,full"], "compare: 'full'"),
        (["--questions", "nowhere.qa.csv"], "BEIR folder"),
        (["--run", "nowhere.run"], "nowhere.run"),
        (["--json", "no/such/folder/x.json"], "cannot write"),
        (["--limit-queries", "0"], "limit_queries=0"),
        (["--model", "no-such-model-anywhere/x"], "no-such-model-anywhere"),
    ],
)
def test_errors_are_one_line_and_status_one(beir, capsys, arguments, named):
    assert main(["eval", str(beir), *([] if "--search" in arguments else FAST[:2]), *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert named in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [[], ["x", "--rerank", "a"], ["x", "--compare", "beta"]])
def test_wrong_usage_is_status_two(beir, capsys, arguments):
    given = [str(beir) if a == "x" else a for a in arguments]
    assert main(["eval", *given]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_belongs_to_one_dataset_and_names_are_distinct(beir, dpr, capsys):
    assert main(["eval", str(beir), str(dpr), "--run", "x.run"]) == 2
    assert main(["eval", str(beir), str(beir), *FAST]) == 1
    assert "two are named 'small'" in capsys.readouterr().err


def test_a_missing_package_is_named(beir, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    assert main(["eval", str(beir), "--search", "bot"]) == 1
    assert "pip install 'sidr-rag[eval]'" in capsys.readouterr().err


def test_measures_with_commas_inside_brackets_are_one(beir, capsys):
    assert main(["eval", str(beir), "--search", "bm25", "--measures", "Success(rel=2)@5,R@100"]) == 0
    assert "Success(rel=2)@5" in capsys.readouterr().out
