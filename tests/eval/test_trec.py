"""Runs and judgements in TREC's formats."""

import gzip

import numpy as np
import pytest

from sidr_rag.errors import FileReadError, InvalidInputError
from sidr_rag.eval import read_qrels, read_run, write_qrels, write_run


def test_a_run_comes_back_as_it_was(tmp_path):
    run = {"q1": [("b", 2.5), ("a", float(np.float32(0.1))), ("c", -3.0)], "q2": [("a", 1e-30)], "q3": []}
    path = tmp_path / "x.run"
    write_run(run, path, tag="mine")
    assert path.read_text(encoding="utf-8").splitlines()[0] == "q1 Q0 b 1 2.5 mine"
    assert {q: [p for p, _ in found] for q, found in read_run(path).items()} == {"q1": ["b", "a", "c"], "q2": ["a"]}
    assert [np.float32(s) for _, s in read_run(path)["q1"]] == [np.float32(s) for _, s in run["q1"]]
    packed = tmp_path / "x.run.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_run(packed) == read_run(path)


def test_equal_scores_keep_their_order_in_tools_that_look_at_scores_alone(tmp_path):
    import pytrec_eval

    # trec_eval puts equal scores in falling order of ids, so each of these would come out the wrong way round.
    run = {"q": [("a", 1.0), ("b", 1.0), ("c", 1.0 - 1e-12), ("d", 0.0), ("e", 0.0)]}
    write_run(run, tmp_path / "x.run")
    scores = dict(read_run(tmp_path / "x.run")["q"])
    assert len({np.float32(s) for s in scores.values()}) == 5
    for place, wanted in enumerate("abcde", start=1):
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {wanted: 1}}, {"recip_rank"})
        assert evaluator.evaluate({"q": scores})["q"]["recip_rank"] == pytest.approx(1 / place)


def test_equal_scores_of_a_file_come_by_rank_and_others_by_score(tmp_path):
    path = tmp_path / "x.run"
    path.write_text("q Q0 b 2 1.0 t\nq Q0 a 1 1.0 t\nq Q0 c 9 7 t\n", encoding="utf-8")
    assert [p for p, _ in read_run(path)["q"]] == ["c", "a", "b"]


@pytest.mark.parametrize("bad", ["a b", "", "a\u00a0b", " a", "a\n"])
def test_ids_that_the_format_cannot_hold_are_refused_by_name_and_nothing_is_written(tmp_path, bad):
    path = tmp_path / "x"
    with pytest.raises(InvalidInputError, match="passage id") as caught:
        write_run({"q": [("fine", 2.0), (bad, 1.0)]}, path)
    assert repr(bad) in str(caught.value)
    with pytest.raises(InvalidInputError, match="query id"):
        write_run({bad: [("fine", 2.0)]}, path)
    with pytest.raises(InvalidInputError, match="tag"):
        write_run({"q": [("fine", 2.0)]}, path, tag=bad)
    with pytest.raises(InvalidInputError, match="passage id"):
        write_qrels({"q": {bad: 1}}, path)
    assert not path.exists()


@pytest.mark.parametrize("scores", [(1.0, 2.0), (1.0, float("nan")), (float("inf"), 1.0), (1e300, 1.0)])
def test_scores_that_rise_or_are_not_finite_are_refused(tmp_path, scores):
    with pytest.raises(InvalidInputError, match="query 'q'"):
        write_run({"q": list(zip("ab", scores, strict=True))}, tmp_path / "x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q Q0 a 1 1.0", "has 5 fields"),
        ("q Q0 a b 1 1.0 t", "has 7 fields"),
        ("q Q0 a one 1.0 t", "has a rank or score that is no number"),
        ("q Q0 a 1 nan t", "has a score that is not finite"),
        ("q Q0 x 2 1.0 t", "repeats passage 'x' for query 'q'"),
    ],
)
def test_a_malformed_run_is_named_by_its_line(tmp_path, line, reason):
    path = tmp_path / "x.run"
    path.write_text(f"q Q0 x 1 3.0 t\n\n{line}\n", encoding="utf-8")
    with pytest.raises(FileReadError, match=rf"x\.run, line 3: {reason}"):
        read_run(path)


def test_qrels_come_back_as_they_were(tmp_path):
    qrels = {"q1": {"b": 2, "a": 0}, "q2": {"a": -1}}
    write_qrels(qrels, tmp_path / "x.qrels")
    assert (tmp_path / "x.qrels").read_text(encoding="utf-8") == "q1 0 b 2\nq1 0 a 0\nq2 0 a -1\n"
    assert read_qrels(tmp_path / "x.qrels") == qrels
    (tmp_path / "y").write_text("q1 0 b 2\nq1 0 b 2\nq1 0 b 1\n", encoding="utf-8")
    with pytest.raises(FileReadError, match="line 3: judges passage 'b'"):
        read_qrels(tmp_path / "y")
    with pytest.raises(FileReadError, match="No such file"):
        read_qrels(tmp_path / "nowhere")
