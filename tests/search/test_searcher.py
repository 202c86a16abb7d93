import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from stub_encoders import StubEncoder, TinyTokenizer, oracle, stub_settings, stub_sidr

from sidr_rag.errors import InvalidInputError
from sidr_rag.index.passages import Row
from sidr_rag.index.store import Store
from sidr_rag.search.searcher import SearchPool, check_weights, pairwise_scores, search_index
from sidr_rag.search.weighting import BINARY, Weighting
from sidr_rag.types import SparseVectors

DIM = 26
WEIGHTINGS = [
    BINARY,
    Weighting((1, 2), (1.0, 0.35)),
    Weighting((1, 4), (0.7, 0.9), length_exponent=0.5, length_slope=0.4),
    Weighting((1, 2, 4), (1.0, 0.35, 0.25), idf_exponent=1.0, length_exponent=1.3, length_slope=1.0),
]


def counts_of(text):
    counts = {}
    for word in text.split():
        counts[ord(word) - 97] = counts.get(ord(word) - 97, 0) + 1
    return counts


def bits(scores):
    return np.asarray(scores, np.float32).view(np.uint32).tolist()


def vectors_of(queries):
    return SparseVectors.from_rows([(list(q), list(q.values())) for q in queries], DIM)


@pytest.fixture(scope="module")
def corpus():
    """A store of many segments with deletions, and what lives in it."""
    rng = np.random.default_rng(5)
    tokenizer = TinyTokenizer()
    store = Store.in_memory(stub_settings(tokenizer), tokenizer)
    texts = {}
    for block in range(6):
        letters = rng.choice(DIM, size=(80, 30), p=np.arange(1, DIM + 1) / (DIM * (DIM + 1) / 2))
        added = {
            f"{block}-{i}": " ".join(chr(97 + t) for t in row[: rng.integers(0, 30)]) for i, row in enumerate(letters)
        }
        texts.update(added)
        store.add([Row(0, i, None, t, "{}") for i, t in added.items()])
    gone = [i for i in texts if rng.random() < 0.25]
    store.delete(gone)
    assert len(store.current().views) > 3
    for i in gone:
        del texts[i]
    living = [(row.seq, counts_of(row.text)) for row in store.scan()]
    assert len(living) == len(texts)
    return store, living


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(6)
    made = [
        {int(t): float(rng.choice([0.0, 1e-3, 1.0, 0.1, 2.7, 1e4])) for t in rng.choice(DIM, n, replace=False)}
        for n in rng.integers(0, 15, 24)
    ]
    return [*made, {}, {0: 0.0}, dict.fromkeys(range(DIM), 1 / 3)]


def check(index, living, queries, weighting, k, **arguments):
    expected = oracle(living, queries, weighting, DIM, k)
    got = search_index(index, vectors_of(queries), weighting, k, **arguments)
    for (seqs, scores), hits in zip(got, expected, strict=True):
        assert seqs.tolist() == [seq for seq, _ in hits]
        assert bits(scores) == bits([score for _, score in hits])


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=["binary", "levels", "lengths", "all"])
@pytest.mark.parametrize("k", [0, 1, 7, 1000])
def test_every_kernel_gives_the_bits_of_the_scoring_contract(corpus, queries, kernel, weighting, k):
    store, living = corpus
    check(store.current(), living, queries, weighting, k, kernel=kernel)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_threads_and_batches_change_no_bit(corpus, queries, num_threads):
    store, living = corpus
    pool = SearchPool(num_threads)
    check(store.current(), living, queries, WEIGHTINGS[3], 12, pool=pool)
    for query in queries[:6]:
        check(store.current(), living, [query], WEIGHTINGS[3], 12, pool=pool)
    pool.close()


def test_a_filter_is_applied_before_the_cut(corpus, queries):
    store, living = corpus
    chosen = {seq for seq, _ in living if seq % 5 == 0}

    def allowed(view):
        return view.segment.seqs % 5 == 0

    expected = oracle(living, queries, WEIGHTINGS[2], DIM, 4, allowed=chosen)
    got = search_index(store.current(), vectors_of(queries), WEIGHTINGS[2], 4, allowed=allowed)
    assert [s.tolist() for s, _ in got] == [[seq for seq, _ in hits] for hits in expected]
    nothing = search_index(
        store.current(), vectors_of(queries), BINARY, 4, allowed=lambda v: np.zeros(v.segment.n_rows, bool)
    )
    assert all(len(seqs) == 0 for seqs, _ in nothing)


def test_a_segment_may_be_left_out_of_a_filter(corpus, queries):
    store, living = corpus
    first = store.current().views[0]
    chosen = {int(s) for s in first.segment.seqs}
    expected = oracle(living, queries, BINARY, DIM, 9, allowed=chosen)

    def allowed(view):
        return None if view is first else np.zeros(view.segment.n_rows, bool)

    got = search_index(store.current(), vectors_of(queries), BINARY, 9, allowed=allowed)
    assert [s.tolist() for s, _ in got] == [[seq for seq, _ in hits] for hits in expected]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=14),
    st.dictionaries(st.integers(0, 7), st.floats(0, 1000, width=32), max_size=5),
    st.sampled_from(WEIGHTINGS),
    st.integers(0, 6),
    st.integers(1, 4),
)
def test_the_cut_into_segments_does_not_show(documents, query, weighting, k, parts):
    tokenizer = TinyTokenizer()
    texts = [" ".join(chr(97 + t) for t in d) for d in documents]
    store = Store.in_memory(stub_settings(tokenizer), tokenizer)
    for i in range(parts):
        store.add([Row(0, str(j), None, t, "{}") for j, t in enumerate(texts) if j * parts // max(1, len(texts)) == i])
    living = [(row.seq, counts_of(row.text)) for row in store.scan()]
    assert len(living) == len(texts)
    check(store.current(), living, [query], weighting, k)


def test_ties_come_in_seq_order_across_segments():
    tokenizer = TinyTokenizer()
    store = Store.in_memory(stub_settings(tokenizer), tokenizer)
    for i in range(4):
        store.add([Row(0, f"{i}-{j}", None, "a b", "{}") for j in range(5)])
    [(seqs, scores)] = search_index(store.current(), vectors_of([{0: 1.0, 1: 0.5}]), BINARY, 7)
    assert seqs.tolist() == list(range(1, 8))
    assert set(scores.tolist()) == {1.5}


def test_query_vectors_without_meaning_are_refused():
    good = vectors_of([{1: 1.0}])
    check_weights(good, DIM)
    with pytest.raises(InvalidInputError, match="26"):
        check_weights(good, DIM + 1)
    for weight, word in ((np.nan, "finite"), (np.inf, "finite"), (-1.0, "negative")):
        with pytest.raises(InvalidInputError, match=word):
            check_weights(vectors_of([{1: 1.0}, {2: weight}]), DIM)
    broken = SparseVectors(good.indptr, np.array([DIM], np.int32), good.weights, DIM)
    with pytest.raises(InvalidInputError, match="dims"):
        check_weights(broken, DIM)


@given(
    st.dictionaries(st.integers(0, 9), st.floats(0, 100, width=32), max_size=6),
    st.lists(st.dictionaries(st.integers(0, 9), st.floats(0, 100, width=16), max_size=6), max_size=4),
)
def test_pairwise_scores_are_sums_in_ascending_order(query, passages):
    dims = np.array(sorted(query), np.int32)
    weights = np.array([query[int(t)] for t in dims], np.float32)
    pairs = [(np.array(sorted(p), np.int32), np.array([p[t] for t in sorted(p)], np.float16)) for p in passages]
    expected = []
    for p in passages:
        total = 0.0
        for t in sorted(query):
            if t in p:
                total += float(np.float32(query[t])) * float(np.float16(p[t]))
        expected.append(np.float32(total))
    assert bits(pairwise_scores((dims, weights), pairs)) == bits(expected)


def test_a_pool_keeps_order_passes_errors_on_and_can_be_used_again():
    pool = SearchPool(3)
    assert pool.map(lambda x: x * x, range(20)) == [x * x for x in range(20)]

    def failing(x):
        if x == 3:
            raise ValueError("three")
        return x

    with pytest.raises(ValueError, match="three"):
        pool.map(failing, range(5))
    pool.close()
    assert pool.map(lambda x: x, range(3)) == [0, 1, 2]
    pool.close()


# Any history gives what a fresh index over the living gives

words = st.lists(st.sampled_from("abcdefgh"), max_size=7).map(" ".join)
ids = st.sampled_from([f"id{i}" for i in range(9)])


class Histories(RuleBasedStateMachine):
    """A store in a folder against a dictionary: same passages, same order, same bits."""

    def __init__(self):
        super().__init__()
        self.model = {}
        self.sidr = None

    @initialize(weighting=st.sampled_from(WEIGHTINGS), kind=st.sampled_from(["memory", "folder"]))
    def start(self, weighting, kind):
        import tempfile
        from pathlib import Path

        self.tokenizer = TinyTokenizer()
        self.weighting = weighting
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.copies = 0
        self.path = self.folder / "store" if kind == "folder" else None
        self.sidr = self.opened(self.path)

    def opened(self, path):
        return stub_sidr(
            self.tokenizer, path, encoder=StubEncoder(self.tokenizer), weighting=self.weighting, num_threads=1
        )

    @rule(passages=st.lists(st.tuples(ids, words, st.integers(0, 2)), max_size=5))
    def add(self, passages):
        self.sidr.add(
            [t for _, t, _ in passages], ids=[i for i, _, _ in passages], metadatas=[{"n": n} for _, _, n in passages]
        )
        for i, t, n in passages:
            self.model.pop(i, None)
            self.model[i] = (t, n)

    @rule(passages=st.lists(st.tuples(ids, words), max_size=3))
    def add_new_only(self, passages):
        self.sidr.add([t for _, t in passages], ids=[i for i, _ in passages], on_conflict="skip")
        for i, t in passages:
            self.model.setdefault(i, (t, None))

    @rule(passages=st.lists(st.tuples(ids, words), min_size=1, max_size=3))
    def add_and_fail(self, passages):
        def texts():
            yield from (t for _, t in passages)
            yield 5

        with pytest.raises(TypeError):
            self.sidr.add(texts(), ids=[*(i for i, _ in passages), "never"])

    @rule(gone=st.lists(ids, max_size=5))
    def delete(self, gone):
        assert self.sidr.delete(gone) == len(set(gone) & set(self.model))
        for i in gone:
            self.model.pop(i, None)

    @rule(purge=st.booleans())
    def compact(self, purge):
        self.sidr.compact(purge=purge)

    @rule()
    def reopen(self):
        if self.path is not None:
            self.sidr.close()
            self.sidr = self.opened(self.path)

    @rule()
    def save_and_go_on_with_the_copy(self):
        self.copies += 1
        path = self.folder / f"copy{self.copies}"
        self.sidr.save(path)
        self.sidr.close()
        self.path = path
        self.sidr = self.opened(path)

    @invariant()
    def passages_are_those_of_the_model(self):
        if self.sidr is not None:
            assert len(self.sidr) == len(self.model)
            assert self.sidr.ids() == list(self.model)
            assert [p.text for p in self.sidr.get(self.model)] == [t for t, _ in self.model.values()]

    @rule(query=words, k=st.integers(0, 10), n=st.sampled_from([None, 0, 1, 2]))
    def search(self, query, k, n):
        condition = None if n is None else {"n": n}
        got = self.sidr.search(query, k=k, filter=condition)
        fresh = stub_sidr(self.tokenizer, weighting=self.weighting, num_threads=1)
        fresh.add(
            [t for t, _ in self.model.values()],
            ids=list(self.model),
            metadatas=[{} if m is None else {"n": m} for _, m in self.model.values()],
        )
        expected = fresh.search(query, k=k, filter=condition)
        assert [r.passage for r in got] == [r.passage for r in expected]
        assert bits([r.score for r in got]) == bits([r.score for r in expected])
        if self.weighting.idf_exponent == 0:
            living = [(i, counts_of(t)) for i, (t, _) in self.model.items()]
            allowed = None if n is None else {i for i, (_, m) in self.model.items() if m == n}
            [hits] = oracle(living, [dict.fromkeys(counts_of(query), 1.0)], self.weighting, DIM, k, allowed)
            assert [(r.passage.id, np.float32(r.score)) for r in got] == hits

    def teardown(self):
        if self.sidr is not None:
            self.sidr.close()
            self.scratch.cleanup()


Histories.TestCase.settings = settings(
    max_examples=25, stateful_step_count=18, deadline=None, suppress_health_check=list(HealthCheck)
)
TestHistories = Histories.TestCase


def test_json_of_metadata_is_what_the_engine_stores():
    sidr = stub_sidr(TinyTokenizer())
    sidr.add(["a"], metadatas=[{"n": 1}])
    assert [json.loads(row.metadata) for row in sidr._store.scan()] == [{"n": 1}]
