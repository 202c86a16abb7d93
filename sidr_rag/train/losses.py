"""The paper's contrastive loss (section 3.3, eq. L) and the distillation losses, on score matrices."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch import Tensor

from sidr_rag.train.sections import Directions

_CONTRAST = 3.0


def contrastive(
    scores: Tensor, target: Tensor, allowed: Tensor, temperature: Tensor | float, directions: Directions = "both"
) -> Tensor:
    """Mean over the batch of the paper's eq. L: -log softmax of the matching pair, by query, by passage, or both.

    L(q, p) = -sum_i (log e^f(q_i,p_i) / sum_p e^f(q_i,p) + log e^f(p_i,q_i) / sum_q e^f(p_i,q)), with
    f = score / temperature, and the sum taken as a mean.

    Args:
        scores: f32[queries, passages].
        target: i64[queries], the column of each query's positive.
        allowed: bool[queries, passages]; false takes a pair out of both sums. A query's own positive counts anyway.
        temperature: positive.
        directions: "query" (first term), "passage" (second term), "both".

    Returns:
        f32 scalar; the two directions are added, as in the paper.
    """
    logits = scores.float() / temperature
    rows = torch.arange(len(target), device=scores.device)
    kept = allowed.clone()
    kept[rows, target] = True
    total = logits.new_zeros(())
    if directions != "passage":
        total = total + F.cross_entropy(logits.masked_fill(~kept, float("-inf")), target)
    if directions != "query":
        # Row i: the scores of query i's positive with every query; a query that shares the positive is no negative.
        by_passage, usable = logits[:, target].t(), kept[:, target].t()
        same = target[:, None] == target[None, :]
        usable = (usable & ~same) | torch.eye(len(target), dtype=torch.bool, device=scores.device)
        total = total + F.cross_entropy(by_passage.masked_fill(~usable, float("-inf")), rows)
    return total


def off_target_spread(scores: Tensor, target: Tensor, allowed: Tensor) -> float:
    """A third of the standard deviation of the scores of non-matching pairs: an "auto" temperature.

    Inner products of vocabulary vectors run from tens to thousands; divided by this, they spread over a few units,
    and a softmax learns.
    """
    others = allowed.clone()
    others[torch.arange(len(target), device=scores.device), target] = False
    values = scores.detach().float()[others]
    spread = float(values.std()) if values.numel() > 1 else 0.0
    return spread / _CONTRAST if spread > 0 else 1.0


def accuracy(scores: Tensor, target: Tensor, allowed: Tensor) -> float:
    """Share of the queries whose positive has a higher score than every other allowed passage."""
    kept = allowed.clone()
    rows = torch.arange(len(target), device=scores.device)
    kept[rows, target] = False
    best = scores.detach().masked_fill(~kept, float("-inf")).amax(dim=1)
    return float((scores.detach()[rows, target] > best).float().mean())


def distillation(
    student: Tensor,
    teacher: Tensor,
    known: Tensor,
    student_temperature: Tensor | float,
    teacher_temperature: float,
    kind: Literal["kl", "margin_mse"],
) -> Tensor:
    """How far the student's scores over the candidates are from the teacher's; mean over all queries of the batch.

    "kl": KL(softmax(teacher / T_t) || softmax(student / T_s)). "margin_mse": the mean squared difference of
    (score - the teacher's best candidate's score), each side divided by its temperature.

    Args:
        student: f32[queries, candidates].
        teacher: f32[queries, candidates].
        known: bool[queries, candidates]; candidates without a teacher's score are left out. A query with fewer than
            two of them adds 0, so that a few scored queries in a batch weigh no more than any others.
        student_temperature: divides the student's scores.
        teacher_temperature: divides the teacher's scores.
        kind: which loss.

    Returns:
        f32 scalar; 0 where no query has two known candidates.
    """
    usable = known.sum(dim=1) >= 2
    share = usable.float().mean()
    if not bool(usable.any()):
        return student.sum() * 0.0
    student, teacher, known = student[usable].float(), teacher[usable].float(), known[usable]
    student, teacher = student / student_temperature, teacher / teacher_temperature
    if kind == "kl":
        expected = F.log_softmax(teacher.masked_fill(~known, float("-inf")), dim=1)
        given = F.log_softmax(student.masked_fill(~known, float("-inf")), dim=1)
        # Outside `known` both are -inf; their difference would be NaN.
        difference = torch.where(known, expected - given, 0.0)
        return (torch.where(known, expected.exp(), 0.0) * difference).sum(dim=1).mean() * share
    best = teacher.masked_fill(~known, float("-inf")).argmax(dim=1, keepdim=True)
    margins = (student - student.gather(1, best)) - (teacher - teacher.gather(1, best))
    others = known.clone()
    others.scatter_(1, best, False)
    return (torch.where(others, margins, 0.0) ** 2).sum() / others.sum().clamp(min=1) * share
