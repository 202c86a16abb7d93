import numpy as np
import pytest

from sidr_rag.train.sampler import Sampler

SOURCES = [np.arange(0, 10), np.arange(10, 110), np.arange(110, 113)]


def sampler(**options):
    settings = {"size_exponent": 0.5, "one_source": 0.5, "seed": 4, **options}
    return Sampler(SOURCES, [1.0, 1.0, 1.0], **settings)


def drawn(source, n=30, start=0):
    return [source.draw(position, "beta", 8) for position in range(start, start + n)]


def test_the_same_seed_draws_the_same():
    for a, b in zip(drawn(sampler()), drawn(sampler()), strict=True):
        assert a.collection == b.collection
        np.testing.assert_array_equal(a.examples, b.examples)
    assert any(a.collection != b.collection for a, b in zip(drawn(sampler()), drawn(sampler(seed=5)), strict=True))


def test_restoring_goes_on_as_if_nothing_had_happened():
    whole = drawn(sampler(), 30)
    first = sampler()
    drawn(first, 12)
    second = sampler()
    second.restore(first.state())
    for a, b in zip(whole[12:], drawn(second, 18, start=12), strict=True):
        np.testing.assert_array_equal(a.examples, b.examples)


def test_processes_share_a_batch_without_overlap():
    alone = sampler(one_source=0.0)
    parts = [sampler(one_source=0.0, rank=rank, world=2) for rank in range(2)]
    for position in range(10):
        whole = alone.draw(position, "full", 16).examples
        shares = [part.draw(position, "full", 8) for part in parts]
        np.testing.assert_array_equal(np.sort(whole), np.sort(np.concatenate([s.examples for s in shares])))
        assert shares[0].collection == shares[1].collection
        assert shares[0].seed != shares[1].seed


def test_an_epoch_has_every_example_once():
    one = sampler(one_source=1.0)
    seen = {0: [], 1: [], 2: []}
    for batch in drawn(one, 200):
        seen[batch.collection] += batch.examples.tolist()
    for source, numbers in seen.items():
        n = len(SOURCES[source])
        for start in range(0, len(numbers) - n + 1, n):
            assert sorted(numbers[start : start + n]) == SOURCES[source].tolist()


def test_a_batch_of_a_small_source_is_small():
    batches = [b for b in drawn(sampler(one_source=1.0), 100) if b.collection == 2]
    assert batches
    assert all(len(batch.examples) == 3 for batch in batches)


@pytest.mark.parametrize(("exponent", "share"), [(1.0, 100 / 113), (0.0, 1 / 3)])
def test_sources_are_drawn_by_their_share(exponent, share):
    batches = drawn(sampler(one_source=1.0, size_exponent=exponent), 600)
    assert np.mean([b.collection == 1 for b in batches]) == pytest.approx(share, abs=0.06)


def test_a_share_of_the_batches_is_of_taught_examples():
    taught = [np.array([2, 5, 7]), np.arange(30, 40), np.empty(0, dtype=np.int64)]
    batches = drawn(sampler(taught=taught, taught_share=0.4), 300)
    scored = set(np.concatenate([taught[0], taught[1], SOURCES[2]]).tolist())
    only = [b for b in batches if set(b.examples.tolist()) <= scored]
    assert 0.3 < len(only) / len(batches) < 0.6  # a batch of the third source is always among them
    assert any(set(b.examples.tolist()) <= {2, 5, 7} and len(b.examples) == 3 for b in only)
    assert drawn(sampler(taught_share=0.4), 5)[0].examples.tolist() == drawn(sampler(), 5)[0].examples.tolist()
