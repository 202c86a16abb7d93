import pytest


def _names():
    from benchmarks.searchers import NAMES

    return NAMES


@pytest.mark.parametrize("name", _names())
def test_every_searcher_finds_what_it_promises(name, bench_corpus, tmp_path):
    from benchmarks.corpora import N_QUERIES
    from benchmarks.searchers import PeerAbsentError, searcher
    from benchmarks.searchers.base import BatchSearcher

    kind = searcher(name)
    made = kind(bench_corpus, tmp_path / "index")
    try:
        made.load()
    except PeerAbsentError as e:
        pytest.skip(str(e))
    if not kind.in_memory:
        made.build()
    made.open()
    assert made.index_bytes() > 0 or name == "rank_bm25"
    for query_set in kind.sets:
        made.take(query_set)
        found = [made.rows(made.search(i)) for i in range(N_QUERIES)]
        assert all(0 <= row < len(bench_corpus) for rows in found for row in rows)
        if kind.has_recall:
            recall = sum(bench_corpus.recall(query_set, i, rows) for i, rows in enumerate(found)) / N_QUERIES
            assert recall == 1.0 if kind.exact else recall > 0.8
        if issubclass(kind, BatchSearcher):
            made.search_all()
    made.settings()


def test_an_absent_peer_is_named():
    from benchmarks.searchers.base import PeerAbsentError, peer

    with pytest.raises(PeerAbsentError, match="no-such-peer"):
        peer("no_such_module_of_a_peer", "no-such-peer")


def test_batches_of_ours_and_of_the_matrices_are_the_single_answers(bench_corpus, tmp_path):
    from benchmarks.corpora import N_QUERIES
    from benchmarks.searchers import searcher

    ours = searcher("sidr")(bench_corpus, tmp_path / "index")
    ours.build()
    ours.open()
    ours.take("default")
    together = ours.search_all()
    assert together.ids == [ours.search(i).ids[0] for i in range(N_QUERIES)]
    matrix = searcher("scipy")(bench_corpus, tmp_path)
    matrix.open()
    matrix.take("default")
    assert [list(rows) for rows in matrix.search_all()] == [list(matrix.search(i)) for i in range(N_QUERIES)]
