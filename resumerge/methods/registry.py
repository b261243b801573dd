"""The merge methods by name."""

from __future__ import annotations

from resumerge.methods.arcee_fusion import ArceeFusion
from resumerge.methods.breadcrumbs import Breadcrumbs, BreadcrumbsTies
from resumerge.methods.dare import DareLinear, DareTies
from resumerge.methods.della import Della, DellaLinear
from resumerge.methods.karcher import Karcher
from resumerge.methods.linear import Linear
from resumerge.methods.method import Method
from resumerge.methods.model_stock import ModelStock
from resumerge.methods.multislerp import MultiSlerp
from resumerge.methods.nearswap import NearSwap
from resumerge.methods.nuslerp import NuSlerp
from resumerge.methods.passthrough import Passthrough
from resumerge.methods.ram import Ram, RamPlus
from resumerge.methods.sce import Sce
from resumerge.methods.slerp import Slerp
from resumerge.methods.task_vectors import TaskArithmetic
from resumerge.methods.ties import Ties

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Linear(),
        Slerp(),
        NuSlerp(),
        MultiSlerp(),
        Karcher(),
        TaskArithmetic(),
        Ties(),
        DareLinear(),
        DareTies(),
        Della(),
        DellaLinear(),
        Breadcrumbs(),
        BreadcrumbsTies(),
        Sce(),
        ModelStock(),
        NearSwap(),
        ArceeFusion(),
        Ram(),
        RamPlus(),
        Passthrough(),
    )
}
