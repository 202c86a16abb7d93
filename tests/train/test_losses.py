import math

import pytest
import torch

from sidr_rag.train.losses import accuracy, contrastive, distillation, off_target_spread

SCORES = torch.tensor([[2.0, 0.0, 1.0], [0.5, 3.0, 0.0]])
TARGET = torch.tensor([0, 1])
ALL = torch.ones(2, 3, dtype=torch.bool)


def log_sum(*values):
    return math.log(sum(math.exp(v) for v in values))


def test_both_directions_are_the_papers_sum():
    by_query = (log_sum(2, 0, 1) - 2 + log_sum(0.5, 3, 0) - 3) / 2
    by_passage = (log_sum(2, 0.5) - 2 + log_sum(0, 3) - 3) / 2
    assert contrastive(SCORES, TARGET, ALL, 1.0, "query").item() == pytest.approx(by_query, abs=1e-6)
    assert contrastive(SCORES, TARGET, ALL, 1.0, "passage").item() == pytest.approx(by_passage, abs=1e-6)
    assert contrastive(SCORES, TARGET, ALL, 1.0).item() == pytest.approx(by_query + by_passage, abs=1e-6)


def test_the_temperature_divides():
    assert contrastive(SCORES, TARGET, ALL, 2.0).item() == pytest.approx(
        contrastive(SCORES / 2, TARGET, ALL, 1.0).item()
    )


def test_what_is_not_allowed_counts_nowhere():
    allowed = ALL.clone()
    allowed[0, 2] = False
    expected = (log_sum(2, 0) - 2 + log_sum(0.5, 3, 0) - 3) / 2
    assert contrastive(SCORES, TARGET, allowed, 1.0, "query").item() == pytest.approx(expected, abs=1e-6)
    allowed[0, 0] = False  # a positive counts anyway
    assert contrastive(SCORES, TARGET, allowed, 1.0, "query").item() == pytest.approx(expected, abs=1e-6)


def test_queries_of_one_passage_are_no_negatives_of_each_other():
    scores = torch.tensor([[2.0, 0.0], [1.5, 0.3], [0.1, 3.0]])
    target = torch.tensor([0, 0, 1])
    allowed = torch.ones(3, 2, dtype=torch.bool)
    expected = (log_sum(2, 0.1) - 2 + log_sum(1.5, 0.1) - 1.5 + log_sum(0, 0.3, 3) - 3) / 3
    assert contrastive(scores, target, allowed, 1.0, "passage").item() == pytest.approx(expected, abs=1e-6)


def test_accuracy_wants_the_positive_above_all_others():
    assert accuracy(SCORES, TARGET, ALL) == 1.0
    assert accuracy(SCORES, torch.tensor([2, 1]), ALL) == 0.5
    allowed = ALL.clone()
    allowed[0, 0] = False
    assert accuracy(SCORES, torch.tensor([2, 1]), allowed) == 1.0
    assert accuracy(torch.zeros(1, 2), torch.tensor([0]), torch.ones(1, 2, dtype=torch.bool)) == 0.0  # a tie is no hit


def test_the_automatic_temperature():
    others = torch.tensor([0.0, 1.0, 0.5, 0.0])
    assert off_target_spread(SCORES, TARGET, ALL) == pytest.approx(float(others.std()) / 3)
    assert off_target_spread(torch.ones(2, 3), TARGET, ALL) == 1.0


def test_kl_by_hand():
    student, teacher = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.0, 3.0, 0.0]])
    known = torch.tensor([[True, True, False]])
    p = [1 / (1 + math.exp(1.5)), 1 / (1 + math.exp(-1.5))]
    q = [1 / (1 + math.e), 1 / (1 + 1 / math.e)]
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert distillation(student, teacher, known, 1.0, 2.0, "kl").item() == pytest.approx(expected, abs=1e-6)


def test_margin_mse_by_hand():
    student, teacher = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0.0, 3.0, 1.0]])
    known = torch.ones(1, 3, dtype=torch.bool)
    expected = ((-1 - -3) ** 2 + (2 - -2) ** 2) / 2
    assert distillation(student, teacher, known, 1.0, 1.0, "margin_mse").item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["kl", "margin_mse"])
def test_a_student_that_agrees_has_nothing_to_learn(kind):
    scores = torch.tensor([[1.0, 2.0, -3.0]], requires_grad=True)
    known = torch.ones(1, 3, dtype=torch.bool)
    loss = distillation(scores, scores.detach() * 2, known, 1.0, 2.0, kind)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert scores.grad.abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["kl", "margin_mse"])
def test_queries_that_the_teacher_does_not_know_add_nothing(kind):
    student = torch.tensor([[1.0, 2.0], [5.0, 1.0]], requires_grad=True)
    teacher = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    known = torch.tensor([[True, True], [True, False]])
    distillation(student, teacher, known, 1.0, 1.0, kind).backward()
    assert student.grad[1].abs().max() == 0
    other = torch.tensor([[1.0, 4.0], [5.0, 1.0]])
    expected = distillation(other[:1], teacher[:1], known[:1], 1.0, 1.0, kind).item() / 2
    assert expected > 0
    assert distillation(other, teacher, known, 1.0, 1.0, kind).item() == pytest.approx(expected)
    nothing = distillation(student, teacher, torch.zeros(2, 2, dtype=torch.bool), 1.0, 1.0, kind)
    assert nothing.item() == 0
    nothing.backward()
