"""The paired bootstrap against the normal approximation and exact cases; Holm's correction by hand."""

import math

import numpy as np
import pytest

from sidr_rag.errors import InvalidInputError, InvalidTypeError
from sidr_rag.eval import bootstrap, holm


def test_many_queries_give_the_normal_approximation():
    draw = np.random.default_rng(7)
    b = draw.random(400)
    a = b + draw.normal(0.012, 0.15, 400)
    d = a - b
    error = d.std() / math.sqrt(400)
    result = bootstrap(a, b, samples=20_000)
    assert result.difference == pytest.approx(d.mean())
    assert result.low == pytest.approx(d.mean() - 1.96 * error, abs=error / 10)
    assert result.high == pytest.approx(d.mean() + 1.96 * error, abs=error / 10)
    assert result.p_value == pytest.approx(math.erfc(abs(d.mean()) / error / math.sqrt(2)), abs=0.02)
    assert (result.n, result.wins + result.losses) == (400, 400)


def test_two_queries_are_worked_out_by_hand():
    # Differences 0 and 1: samples have means 0, 1/2 (twice) and 1; shifted by 1/2, two of four are as far as 1/2.
    result = bootstrap([1.0, 1.0], [1.0, 0.0], samples=40_000)
    assert (result.difference, result.low, result.high, result.wins, result.losses) == (0.5, 0.0, 1.0, 1, 0)
    assert result.p_value == pytest.approx(0.5, abs=0.02)


def test_equal_values_are_no_difference_and_a_constant_one_is_sure():
    same = bootstrap([0.3, 0.1, 0.7], [0.3, 0.1, 0.7])
    assert (same.difference, same.p_value, same.low, same.high) == (0, 1, 0, 0)
    sure = bootstrap([0.4, 0.2, 0.8], [0.3, 0.1, 0.7], samples=999)
    assert sure.p_value == pytest.approx(1 / 1000)
    assert (sure.low, sure.high) == (pytest.approx(0.1), pytest.approx(0.1))


def test_a_seed_decides_the_draws_and_the_sides_are_mirrored():
    draw = np.random.default_rng(3)
    a, b = draw.random(50), draw.random(50)
    assert bootstrap(a, b, seed=4) == bootstrap(a, b, seed=4)
    assert bootstrap(a, b, seed=4) != bootstrap(a, b, seed=5)
    one, other = bootstrap(a, b), bootstrap(b, a)
    assert (other.p_value, other.wins, other.losses) == (one.p_value, one.losses, one.wins)
    assert (other.low, other.high) == (pytest.approx(-one.high), pytest.approx(-one.low))


def test_blocks_do_not_change_the_draws_statistics(monkeypatch):
    from sidr_rag.eval import significance

    draw = np.random.default_rng(3)
    a, b = draw.random(40), draw.random(40)
    whole = bootstrap(a, b, samples=5000)
    monkeypatch.setattr(significance, "_DRAWS_AT_ONCE", 400)
    assert bootstrap(a, b, samples=5000).p_value == pytest.approx(whole.p_value, abs=0.05)


def test_about_five_in_a_hundred_true_nulls_are_called_different():
    draw = np.random.default_rng(11)
    called = sum(
        bootstrap(draw.normal(0, 1, 60), draw.normal(0, 1, 60), samples=400, seed=i).p_value < 0.05 for i in range(300)
    )
    assert 4 <= called <= 30


@pytest.mark.parametrize(
    ("a", "b", "named"),
    [
        ([], [], "a has shape"),
        ([1.0], [1.0, 2.0], "a has 1 values and b has 2"),
        ([math.nan], [1.0], "a has shape"),
        ([1.0], [[1.0]], "b has shape"),
    ],
)
def test_unusable_values_are_refused(a, b, named):
    with pytest.raises(InvalidInputError, match=named):
        bootstrap(a, b)


def test_unusable_settings_are_refused():
    with pytest.raises(InvalidInputError, match="samples=0"):
        bootstrap([1.0], [0.0], samples=0)
    with pytest.raises(InvalidTypeError, match="samples"):
        bootstrap([1.0], [0.0], samples=1.5)
    with pytest.raises(InvalidInputError, match="confidence=1"):
        bootstrap([1.0], [0.0], confidence=1)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []
    with pytest.raises(InvalidInputError, match="p_values"):
        holm([1.2])
