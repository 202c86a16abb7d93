import itertools
import json
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden"


def _rows(matrix):
    starts, columns = matrix.crow_indices().tolist(), matrix.col_indices().tolist()
    return [columns[a:b] for a, b in itertools.pairwise(starts)]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_the_authors_bags_are_those_of_their_own_code_in_every_batch():
    pytest.importorskip("torch")
    if not GOLDEN.is_dir():
        pytest.skip("the reference values are not on this machine")
    from benchmarks.searchers.authors import BATCH, authors_bags, authors_tokenizer

    texts = json.loads((GOLDEN / "texts.json").read_text(encoding="utf-8"))["passages"]
    with np.load(GOLDEN / "expected.npz") as arrays:
        indptr, indices = arrays["p_bot.indptr"], arrays["p_bot.indices"]
        width = int(arrays["p_bot.shape"][1])
    expected = [sorted(indices[a:b].tolist()) for a, b in itertools.pairwise(indptr)]
    copies = 3 * BATCH // len(texts)
    bags = authors_bags(texts * copies, authors_tokenizer())
    assert bags.shape == (len(texts) * copies, width)
    assert _rows(bags) == expected * copies
    assert set(bags.values().tolist()) == {1.0}
