import pytest


def test_a_child_that_dies_is_an_error_with_its_status(bench_corpus, tmp_path):
    from benchmarks.search_children import ChildFailedError, Served

    with Served("scipy", bench_corpus, tmp_path) as child:
        assert child.opened["bytes"] > 0
        assert child.ask("take", name="flat", seconds=1.0, least=3)["recall"] == 1.0
        assert len(child.ask("round")["cpu"]) == 32
        child._pipe.kill()
        with pytest.raises(ChildFailedError, match="ended"):
            child.ask("round")


def test_a_searcher_that_cannot_open_costs_its_row_alone(bench_corpus, monkeypatch, tmp_path):
    from benchmarks import search_rounds

    places = {"scipy": tmp_path, "sidr": tmp_path / "missing", "rank_bm25": "not run beyond 100,000"}
    monkeypatch.setattr(search_rounds, "built", lambda names, corpus: {name: places[name] for name in names})
    measured = search_rounds.measure_rounds(list(places), bench_corpus, rounds=2, sets=["default"])
    assert measured["sidr"].failed.startswith("failed: ")
    assert not measured["sidr"].sets
    assert measured["rank_bm25"].failed == "not run beyond 100,000"
    times = measured["scipy"].sets["default"]
    assert times.recall == 1.0
    assert len(times.cpu) == len(times.wall) == 32
    assert times.ratio_to(times) == 1.0


def test_an_index_is_built_once_and_shared(bench_corpus):
    from benchmarks.search_children import build_facts, built

    places = built(["sidr", "sidr_three_levels", "scipy"], bench_corpus)
    assert places["sidr"] == places["sidr_three_levels"]
    stamp = (places["sidr"] / "built.json").stat().st_mtime_ns
    assert build_facts(places["sidr"])["bytes"] > 0
    assert (built(["sidr"], bench_corpus)["sidr"] / "built.json").stat().st_mtime_ns == stamp


def test_a_corpus_too_large_for_a_searcher_is_said(bench_corpus, monkeypatch):
    from benchmarks.search_children import built
    from benchmarks.searchers import searcher

    monkeypatch.setattr(searcher("rank_bm25"), "most_passages", 100)
    assert built(["rank_bm25"], bench_corpus) == {"rank_bm25": "not run beyond 100"}
