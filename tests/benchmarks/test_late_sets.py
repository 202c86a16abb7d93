import pytest

from sidr_rag.eval import Dataset
from sidr_rag.types import Passage

pytest.importorskip("ir_measures")

TEXTS = {
    "heart": "The heart pumps blood through the body.",
    "copper": "Copper conducts electricity.",
    "falcon": "Falcons hunt small birds by day.",
    "lungs": "Blood carries oxygen from the lungs to the heart.",
}
QUERIES = {"q1": "Which metal conducts electricity?", "q2": "What does the heart pump?"}
QRELS = {"q1": {"copper": 1}, "q2": {"heart": 1}}
CHOSEN = {
    "beta": {},
    "binary": {"weighting": "binary"},
    "no encoder": {"first_stage": "lexical"},
    "late": {"rerank": 2},
    "full": {"search": "full"},
}


def made(queries=None):
    passages = [Passage(i, text) for i, text in TEXTS.items()]
    return Dataset("made", "test", lambda: iter(passages), queries or QUERIES, QRELS)


def test_figures_are_measured_once_and_kept(tmp_path, monkeypatch):
    from benchmarks import late_sets

    place = tmp_path / "late" / "made", tmp_path / "late" / "made.json"
    figures = late_sets.figures_of(made(), *place, CHOSEN)
    assert (figures.passages, figures.queries) == (4, 2)
    assert list(figures.searches) == list(CHOSEN)
    found = figures.searches
    assert found["no encoder"].score == 1.0
    assert all(0 < m.score <= 1 for m in found.values())
    assert (found["beta"].texts, found["no encoder"].texts) == (2, 0)
    assert found["full"].texts == 2 + 4
    assert 2 + 2 <= found["late"].texts <= 2 + 2 * 2, "every candidate counts, kept or not"
    assert found["late"].share == found["late"].texts / 4
    assert found["full"].distinct == 4
    assert all(m.cpu_ms > 0 for m in found.values())
    assert figures.kept_bytes > figures.index_bytes / 4 > 0

    def refuse(*arguments):
        raise AssertionError("measured again")

    with monkeypatch.context() as patch:
        patch.setattr(late_sets, "_measured", refuse)
        assert late_sets.figures_of(made(), *place, CHOSEN) == figures
        for data, chosen in ((made({"q1": QUERIES["q1"]}), CHOSEN), (made(), {"beta": {}})):
            with pytest.raises(AssertionError, match="again"):
                late_sets.figures_of(data, *place, chosen)
        with pytest.raises(AssertionError, match="again"):
            late_sets.figures_of(made(), *place, CHOSEN, again=True)
    fewer = late_sets.figures_of(made(), *place, {"beta": {}})
    assert list(fewer.searches) == ["beta"]


def test_a_set_is_not_embedded_for_searches_of_candidates(tmp_path):
    from benchmarks import late_sets

    figures = late_sets.figures_of(made(), tmp_path / "made", tmp_path / "made.json", {"late": {"rerank": 1}})
    assert figures.index_bytes == 0
    assert 1 <= figures.searches["late"].distinct <= 2
