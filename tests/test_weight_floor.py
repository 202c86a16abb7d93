"""`weight_floor` of a search: what it leaves out, what it leaves as it is, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import stub_encoders as stubs

from sidr_rag import InvalidInputError, InvalidTypeError
from sidr_rag.search.weighting import BINARY, Weighting, weigh_queries, without_light_weights
from sidr_rag.similarity import search_relevance

TEXTS = ["copper wire", "copper", "harbor wire", "river", "wire", "copper harbor", "stone copper wire harbor"]
QUERY = "copper harbor wire stone"
LEVELLED = Weighting((1, 2), (1.0, 0.3), idf_exponent=1.0, length_exponent=0.5, length_slope=0.4)


def filled(make, tokenizer, weighting=BINARY):
    sidr = make(encoder=stubs.StubEncoder(tokenizer, spread=4), weighting=weighting)
    sidr.add(TEXTS, ids=[f"t{i}" for i in range(len(TEXTS))])
    return sidr


def found(results):
    return [(r.passage.id, np.float32(r.score)) for r in results]


@pytest.mark.parametrize("weighting", [BINARY, LEVELLED], ids=["binary", "levelled"])
@pytest.mark.parametrize("floor", [0.2, 0.6, 1.0])
def test_scores_are_those_of_the_heavier_weights(make, tokenizer, weighting, floor):
    sidr = filled(make, tokenizer, weighting)
    index = sidr._store.current()
    weights = weigh_queries(sidr.encode_queries([QUERY]), sidr.bags([QUERY]), weighting, index.df, index.n_live)
    kept = without_light_weights(weights, floor)
    assert 0 < len(kept.dims) < len(weights.dims)
    ((seqs, scores),) = sidr._pipeline.first.beta(kept, weighting, 10, None, index)
    rows = sidr._store.fetch(seqs.tolist())
    wanted = [(rows[int(seq)].id, score) for seq, score in zip(seqs, scores, strict=True)]
    assert found(sidr.search(QUERY, weight_floor=floor)) == wanted
    assert found(sidr.search([QUERY, "river"], weight_floor=floor)[0]) == wanted
    assert wanted or floor > 0.2
    for passage_id, score in wanted:
        assert np.float32(sidr.explain(QUERY, passage_id, weight_floor=floor).score) == score


def test_off_by_default_and_at_zero(make, tokenizer):
    sidr = filled(make, tokenizer, LEVELLED)
    assert found(sidr.search(QUERY, weight_floor=0.0)) == found(sidr.search(QUERY))
    assert found(sidr.search(QUERY, weight_floor=0)) == found(sidr.search(QUERY))
    assert found(sidr.search(QUERY, weight_floor=1.0)) != found(sidr.search(QUERY))


def test_first_stages_without_such_weights_stay_as_they_are(make, tokenizer):
    sidr = filled(make, tokenizer)
    plain = found(sidr.search(QUERY, first_stage="overlap"))
    assert found(sidr.search(QUERY, first_stage="overlap", weight_floor=1.0)) == plain


def test_a_fusion_hands_it_on_to_its_parts(make, tokenizer):
    sidr = filled(make, tokenizer)
    ids = [r.passage.id for r in sidr.search(QUERY, first_stage="sidr+lexical", weight_floor=1.0)]
    assert ids != [r.passage.id for r in sidr.search(QUERY, first_stage="sidr+lexical")]


@pytest.mark.parametrize("value", ["0.1", True, None, [0.1]], ids=repr)
def test_another_type_is_refused(make, tokenizer, value):
    with pytest.raises(InvalidTypeError, match="weight_floor="):
        filled(make, tokenizer).search(QUERY, weight_floor=value)


@pytest.mark.parametrize("value", [-0.1, 1.01, 5, float("nan"), float("inf")])
def test_no_share_is_refused(make, tokenizer, value):
    with pytest.raises(InvalidInputError, match="weight_floor="):
        filled(make, tokenizer).search(QUERY, weight_floor=value)


@pytest.mark.parametrize("search", ["full", "alpha"])
def test_it_belongs_to_beta_search(make, tokenizer, search):
    with pytest.raises(InvalidInputError, match=r"weight_floor=0\.1 needs search='beta'"):
        filled(make, tokenizer).search(QUERY, search=search, weight_floor=0.1)


def test_relevance_has_no_bound_with_it(make, tokenizer):
    with pytest.raises(InvalidInputError, match="weight_floor"):
        search_relevance(filled(make, tokenizer), QUERY, weight_floor=0.1)
