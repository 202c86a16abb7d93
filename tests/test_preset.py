import warnings

import numpy as np
import pytest

from sidr_rag import SiDR
from sidr_rag.errors import InvalidInputError, SidrError

LONG = "copper " * 300 + "zebra"


def test_the_papers_preset_cuts_texts_and_says_so():
    with pytest.warns(UserWarning, match="left out"):
        sidr = SiDR.from_texts([LONG, "a zebra runs"], ids=["long", "short"], preset="paper")
    assert [r.passage.id for r in sidr.search("zebra", k=5, query_repr="bot")] == ["short"]
    assert sidr.info()["weighting"]["levels"] == (1,)
    whole = SiDR.from_texts([LONG, "a zebra runs"], ids=["long", "short"], weighting="binary")
    assert len(whole.search("zebra", k=5, query_repr="bot")) == 2


def test_it_is_the_papers_top_k_without_normalization():
    sidr = SiDR.from_texts(["ﬁsh"], preset="paper")
    [(dims, _)] = sidr.encode_queries(["what is copper used for"])
    assert len(dims) == 768
    [(dims, _)] = sidr.encode_passages(["copper conducts electricity"])
    assert len(dims) == 768
    assert sidr.encoder.tokenizer.normalization == "none"
    assert len(SiDR.from_texts(["fish"], preset="paper", max_active_dims=100).encode_queries(["fish"]).dims) == 100


def test_a_store_of_the_preset_opens_with_it_alone(tmp_path):
    SiDR.from_texts(["copper conducts"], path=tmp_path / "s", preset="paper").close()
    with SiDR.open(tmp_path / "s", preset="paper") as again:
        assert len(again.search("copper")) == 1
    with pytest.raises(SidrError, match="tokenizer"):
        SiDR.open(tmp_path / "s")


def test_an_unknown_preset_is_named():
    with pytest.raises(InvalidInputError, match="preset='papr' is not known; choose one of 'paper'"):
        SiDR.from_texts([], preset="papr")


def test_workers_cut_as_well():
    texts = [f"copper number {i} " * 80 for i in range(64)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = SiDR.from_texts(texts, preset="paper")
        spread = SiDR.from_texts(texts, preset="paper", num_workers=1)
    a, b = alone._store.current().views[0].segment, spread._store.current().views[0].segment
    assert (a.lengths <= 254).all()
    np.testing.assert_array_equal(a.lengths, b.lengths)
