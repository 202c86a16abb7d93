"""Measures by judgements and by answers, against values worked out by hand."""

import math
import sys

import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError, MissingExtraError
from sidr_rag.eval import Dataset, measure
from sidr_rag.eval.measures import check_measures, default_measures, depth_of, judged_queries

QRELS = {"q1": {"a": 2, "b": 1}, "q2": {"c": 1, "a": 0}, "q3": {"d": 1}}
DATA = Dataset("hand", "test", lambda: iter(()), dict.fromkeys(QRELS, "?"), QRELS, {"q2": ["river"]})
RUN = {"q1": [("b", 1.0), ("x", 1.0), ("a", 1.0)], "q2": [("a", 2.0), ("c", 1.0)], "other": [("a", 1.0)]}
TEXTS = {"a": "A river runs.", "b": "", "c": "The sea.", "x": ""}


def test_values_are_those_worked_out_by_hand():
    values = measure(RUN, DATA, ["nDCG@10", "R@100", "RR@10", "Success@1", "Success(answers)@1"], TEXTS)
    ideal = 2 + 1 / math.log2(3)
    assert values["nDCG@10"].tolist() == pytest.approx([(1 + 2 / 2) / ideal, 1 / math.log2(3), 0])
    assert values["R@100"].tolist() == [1, 1, 0]
    assert values["RR@10"].tolist() == [1, 0.5, 0]
    assert values["Success@1"].tolist() == [1, 0, 0]
    assert values["Success(answers)@1"].tolist() == [1]
    assert judged_queries("nDCG@10", DATA) == ["q1", "q2", "q3"]
    assert judged_queries("Success(answers)@1", DATA) == ["q2"]


def test_equal_scores_stay_in_the_run_s_order():
    forward = {"q1": [("b", 1.0), ("x", 1.0)]}
    backward = {"q1": [("x", 1.0), ("b", 1.0)]}
    assert measure(forward, DATA, ["RR@10"])["RR@10"][0] == 1
    assert measure(backward, DATA, ["RR@10"])["RR@10"][0] == 0.5


def test_a_run_that_found_nothing_counts_zero():
    assert measure({}, DATA, ["nDCG@10"])["nDCG@10"].tolist() == [0, 0, 0]
    assert measure({"q1": []}, DATA, ["nDCG@10", "R@100"])["R@100"].tolist() == [0, 0, 0]


def test_defaults_depend_on_what_there_is_to_measure_by():
    assert default_measures(DATA)[:3] == ("nDCG@10", "R@100", "RR@10")
    assert "Success(answers)@20" in default_measures(DATA)
    answers_alone = Dataset("dpr", "all", lambda: iter(()), {"0": "?"}, {}, {"0": ["x"]})
    assert default_measures(answers_alone) == tuple(f"Success(answers)@{k}" for k in (1, 5, 20, 100))
    with pytest.raises(InvalidInputError, match=r"nDCG@10 needs judgements, and dpr has answer strings alone"):
        check_measures(["nDCG@10"], answers_alone)
    judged_alone = Dataset("beir", "test", lambda: iter(()), {"q1": "?"}, {"q1": {"a": 1}})
    with pytest.raises(InvalidInputError, match=r"Success\(answers\)@5 needs answer strings, and beir \(test\)"):
        check_measures(["Success(answers)@5"], judged_alone)


def test_depth_is_the_deepest_cut():
    assert depth_of(["nDCG@10", "R@100"]) == 100
    assert depth_of(["RR@3"]) == 10
    assert depth_of(["Success(answers)@200", "nDCG@10"]) == 200
    assert depth_of(["AP"]) == 100


@pytest.mark.parametrize("name", ["foo@3", "nDCG@@", "nDCG@x", "", "R(x=1)@3", "Success(answers)@0", "ndcg 10"])
def test_an_unknown_measure_is_named(name):
    with pytest.raises(InvalidInputError, match="is not known; use names of ir-measures") as caught:
        check_measures([name], DATA)
    assert repr(name) in str(caught.value)


def test_wrong_arguments_are_named():
    with pytest.raises(InvalidTypeError, match="measures must be a list"):
        check_measures("nDCG@10", DATA)
    with pytest.raises(InvalidInputError, match="texts=None"):
        measure(RUN, DATA, ["Success(answers)@1"])


def test_without_ir_measures_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtraError, match=r"'ir-measures': pip install 'sidr-rag\[eval\]'"):
        measure(RUN, DATA, ["nDCG@10"])
    assert measure(RUN, DATA, ["Success(answers)@1"], TEXTS)["Success(answers)@1"].tolist() == [1]
