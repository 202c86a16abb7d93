import numpy as np
import pytest


def test_the_best_scores_are_those_of_a_dense_product(bench_corpus):
    from benchmarks.corpora import SETS, K

    bags = np.zeros((len(bench_corpus), bench_corpus.dim), np.float64)
    for i in range(len(bench_corpus)):
        bags[i, bench_corpus.dims[bench_corpus.indptr[i] : bench_corpus.indptr[i + 1]]] = 1
    for name in SETS:
        scores = bags @ bench_corpus.vectors(name).toarray().astype(np.float64).T
        expected = -np.sort(-scores, axis=0)[:K].T
        np.testing.assert_allclose(bench_corpus.best(name), expected, rtol=1e-12)


def test_recall_counts_exact_scores_and_no_row_twice(bench_corpus):
    from benchmarks.corpora import K

    bags = np.zeros((len(bench_corpus), bench_corpus.dim), np.float64)
    for i in range(len(bench_corpus)):
        bags[i, bench_corpus.dims[bench_corpus.indptr[i] : bench_corpus.indptr[i + 1]]] = 1
    order = np.argsort(-(bags @ bench_corpus.vectors("flat").toarray()[3]), kind="stable").tolist()
    assert bench_corpus.recall("flat", 3, order[:K]) == 1.0
    assert bench_corpus.recall("flat", 3, [*order[: K // 2], *order[-K // 2 :]]) == 0.5
    assert bench_corpus.recall("flat", 3, order[:1] * K) == 1 / K
    assert bench_corpus.recall("flat", 3, []) == 0.0


def test_flat_queries_have_distinct_dimensions_that_occur(bench_corpus):
    vectors = bench_corpus.vectors("flat")
    vectors.validate()
    held = set(np.unique(bench_corpus.dims).tolist())
    assert all(set(dims.tolist()) <= held for dims, _ in vectors)
    assert min(len(dims) for dims, _ in vectors) > 200


def test_passages_beyond_the_real_ones_are_halves_of_two_and_all_differ(monkeypatch):
    from benchmarks import corpora

    real = [f"{a}1 {a}2 {a}3 {a}4" for a in "abcdefg"]
    monkeypatch.setattr(corpora, "_REAL", len(real))
    monkeypatch.setattr(corpora, "cut_passages", lambda n: real[:n])
    made = list(corpora.passages(30))
    assert made[:7] == real
    assert made[7] == "a1 a2 b3 b4"
    assert len({frozenset(text.split()) for text in made}) == 30
    assert list(corpora.passages(12)) == made[:12]


def test_a_corpus_is_made_once_and_an_unfinished_one_never_used(tmp_path, monkeypatch):
    from benchmarks import corpora

    monkeypatch.setattr(corpora, "few_passages", lambda n: [f"word{i} and text" for i in range(n)])
    monkeypatch.setattr(corpora, "few_questions", lambda n: (_ for _ in ()).throw(OSError("cut off")))
    with pytest.raises(OSError, match="cut off"):
        corpora.prepare(tmp_path, 20, small=True)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(corpora, "few_questions", lambda n: [f"word{i}?" for i in range(n)])
    first = corpora.prepare(tmp_path, 20, small=True)
    stamp = (first.folder / "corpus.json").stat().st_mtime_ns
    assert (corpora.prepare(tmp_path, 20, small=True).folder / "corpus.json").stat().st_mtime_ns == stamp
    assert list(first.texts()) == [f"word{i} and text" for i in range(20)]
