"""Task arithmetic: whole task vectors are added to the base."""

from __future__ import annotations

from resumerge.methods.base import BlockCost, Paper
from resumerge.methods.task_vectors.base import TaskVectors, parameters


class TaskArithmetic(TaskVectors):
    """``base + lambda * sum(w_i * (x_i - base)) / divisor``; see `TaskVectors`."""

    name = "task_arithmetic"
    summary = "the base plus a weighted sum of task vectors"
    papers = (Paper("Editing models with task arithmetic", "https://arxiv.org/abs/2212.04089"),)
    parameters = parameters(normalize=False, rescale=None)
    sparse = False
    is_weighted_sum = True
    cost = BlockCost(0.5, scratch=0.05, per_input=0.035)
