"""The merge methods by name."""

from __future__ import annotations

from resumerge.methods.linear import Linear
from resumerge.methods.method import Method
from resumerge.methods.passthrough import Passthrough
from resumerge.methods.slerp import Slerp
from resumerge.methods.task_vectors import DareLinear, DareTies, TaskArithmetic, Ties

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Linear(),
        Slerp(),
        TaskArithmetic(),
        Ties(),
        DareLinear(),
        DareTies(),
        Passthrough(),
    )
}
