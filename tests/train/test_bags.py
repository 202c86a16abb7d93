from dataclasses import replace

import numpy as np
import pytest
import torch

from sidr_rag.index.bot_index import BotIndex, SegmentView
from sidr_rag.index.builder import build_segment
from sidr_rag.search.searcher import search_index
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries
from sidr_rag.train.bags import Bags, CorpusWeighting, columns_of, dense_rows, idf_of
from sidr_rag.train.pool import Collection
from sidr_rag.types import SparseVectors, TokenCounts

DIM = 60
LEVELLED = Weighting((1, 2, 4), (1.0, 0.35, 0.25), 0.8, 0.5, 0.4, 0.15)
APART = replace(LEVELLED, theta_blend=0.5, expansion_blend=0.2)


@pytest.fixture
def collection():
    rng = np.random.default_rng(1)
    rows = [np.sort(rng.permutation(DIM)[: rng.integers(3, 15)]) for _ in range(40)]
    counts = [rng.integers(1, 6, size=len(row)).astype(np.uint32) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    lengths = np.array([c.sum() for c in counts], dtype=np.uint32)
    tokens = TokenCounts(indptr, np.concatenate(rows).astype(np.uint16), np.concatenate(counts), lengths, DIM)
    pids = np.arange(40, dtype=np.int64)
    segment = build_segment(tokens, (pids + 1).astype(np.uint64), (1, 2, 4))
    return Collection("all", pids, BotIndex.of(DIM, [SegmentView("all", segment)]))


def vectors(n=3, seed=2):
    rng = np.random.default_rng(seed)
    rows = [(np.sort(rng.permutation(DIM)[:12]), rng.random(12).astype(np.float32)) for _ in range(n)]
    theta = SparseVectors.from_rows(rows, DIM)
    own = SparseVectors.from_rows([(d[::3], np.ones(len(d[::3]), np.float32)) for d, _ in rows], DIM)
    dims = torch.from_numpy(np.stack([d for d, _ in rows]).astype(np.int64))
    values = torch.from_numpy(np.stack([w for _, w in rows]))
    flags = torch.zeros_like(values)
    flags[:, ::3] = 1
    return theta, own, dims, values, flags


def searched(collection, weights, weighting):
    scores = np.zeros((len(weights), len(collection.pids)))
    for i, (seqs, values) in enumerate(search_index(collection.index, weights, weighting, len(collection.pids))):
        scores[i, seqs.astype(np.int64) - 1] = values
    return scores


@pytest.mark.parametrize("weighting", [LEVELLED, APART])
def test_the_loss_sees_the_scores_of_the_search(collection, weighting):
    theta, own, dims, values, flags = vectors()
    corpus = CorpusWeighting(weighting, learned=True)
    bags = Bags(collection, collection.pids)
    weighted = corpus.query_weights(values, flags, torch.from_numpy(idf_of(collection))[dims])
    got = corpus.scores(dense_rows(dims, weighted, DIM), bags).detach().numpy()
    w = weigh_queries(theta, own, weighting, collection.index.df, collection.index.n_live)
    np.testing.assert_allclose(got, searched(collection, w, weighting), rtol=1e-4, atol=1e-6)


def test_binary_scores_are_the_papers(collection):
    theta, _, dims, values, _ = vectors()
    got = Bags(collection, collection.pids).levels[0].scores(dense_rows(dims, values, DIM))
    np.testing.assert_allclose(got.numpy(), searched(collection, theta, BINARY), rtol=1e-5, atol=1e-6)


def test_some_passages_in_any_order(collection):
    _, _, dims, values, _ = vectors()
    rows = dense_rows(dims, values, DIM)
    every = Bags(collection, collection.pids)
    some = Bags(collection, np.array([7, 3, 30]))
    torch.testing.assert_close(some.levels[1].scores(rows), every.levels[1].scores(rows)[:, [7, 3, 30]])
    torch.testing.assert_close(some.lengths, every.lengths[[7, 3, 30]])


@pytest.mark.parametrize("weighting", [LEVELLED, APART])
def test_gradients(collection, weighting):
    _, _, dims, values, flags = vectors()
    corpus = CorpusWeighting(weighting, learned=True)
    bags = Bags(collection, collection.pids[:20])
    idf = torch.from_numpy(idf_of(collection))[dims]

    def loss(theta):
        return (corpus.scores(dense_rows(dims, corpus.query_weights(theta, flags, idf), DIM), bags) ** 2).mean()

    theta = values.clone().requires_grad_()
    loss(theta).backward()
    for place in [(0, 0), (1, 5), (2, 11)]:
        step = torch.zeros_like(values)
        step[place] = 1e-2
        with torch.no_grad():
            slope = (loss(values + step) - loss(values - step)) / 2e-2
        assert theta.grad[place].item() == pytest.approx(slope.item(), rel=1e-2)
    for name, parameter in corpus.named_parameters():
        flat = parameter.data.view(-1)
        with torch.no_grad():
            before = flat[0].item()
            flat[0] = before + 1e-2
            above = loss(values)
            flat[0] = before - 1e-2
            below = loss(values)
            flat[0] = before
        slope = (above - below).item() / 2e-2
        assert parameter.grad.view(-1)[0].item() == pytest.approx(slope, rel=2e-2), name


@pytest.mark.parametrize("start", [LEVELLED, APART, BINARY, Weighting((1, 2), (2.0, 1.0), 0.5, 0.3, 0.9, None)])
def test_constants_come_back(start):
    got = CorpusWeighting(start, learned=False).constants()
    assert got.levels == start.levels
    np.testing.assert_allclose(got.gains, np.array(start.gains) / start.gains[0], rtol=1e-3)
    assert got.idf_exponent == pytest.approx(start.idf_exponent, abs=2e-4)
    assert got.length_exponent == pytest.approx(start.length_exponent, abs=2e-4)
    assert got.length_slope == pytest.approx(start.length_slope, abs=2e-4)
    assert (got.theta_blend, got.expansion_blend) == (start.theta_blend, start.expansion_blend)


def test_constants_that_are_not_learned_take_no_gradient():
    assert not any(p.requires_grad for p in CorpusWeighting(LEVELLED, learned=False).parameters())
    assert all(p.requires_grad for p in CorpusWeighting(LEVELLED, learned=True).parameters())


def test_columns_are_distinct_and_in_order():
    assert columns_of([np.array([3, 1, 3]), np.array([[1, 9], [2, 3]])]).tolist() == [3, 1, 9, 2]
