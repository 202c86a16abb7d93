import json

import pytest


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A result, whose files go to a temporary folder."""
    from benchmarks import results

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "MARKDOWN", tmp_path / "RESULTS.md")
    return results.Result("growth", "Growing", ["how"], ["a peer"], ["numpy"], "python -m benchmarks.growth")


def test_a_missed_target_says_by_how_much_and_what_limits_it(made, tmp_path):
    from benchmarks.results import Must, write_markdown

    made.musts = [
        Must("ms", 90.0, 60.0, aim=40.0, limit="the disk"),
        Must("times", 12.0, 15.0, at_least=True),
        Must("fine", 1.0, 1.0),
    ]
    made.plots = ["growth.svg"]
    made.write()
    write_markdown()
    text = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert "| ms | 90 | <= 60.0 | <= 40.0 | **no**, by 50%: the disk |" in text
    assert "| times | 12 | >= 15.0 |  | **no**, by 20% |" in text
    assert "| fine | 1.000 | <= 1.0 |  | yes |" in text
    assert "](results/growth.svg)" in text


def test_results_written_before_targets_had_aims_still_show(made, tmp_path):
    from benchmarks.results import Must, write_markdown

    made.musts = [Must("old", 2.0, 1.0)]
    made.write()
    path = tmp_path / "growth.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["plots"]
    values["musts"] = [{k: v for k, v in m.items() if k not in ("aim", "limit")} for m in values["musts"]]
    path.write_text(json.dumps(values), encoding="utf-8")
    write_markdown()
    assert "| old | 2.000 | <= 1.0 | **no**, by 100% |" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")


def test_a_trial_writes_nothing(made, tmp_path, capsys):
    made.show()
    assert "## Growing" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
