"""Makes the plan of a merge: units, shards, fingerprint and estimate.

`planner.py` has the order of the steps, and `plan.py` the result. `check_recipe.py` checks a recipe
before models are opened, `slices.py` its numbers of models and layers, and `parameters.py` its
parameters, whose values for each tensor it resolves. `module_matches.py` matches the recipe's
modules with parts of the reference model, `tensor_specs.py` lists the output's tensors with their
names in every input, and `expressions.py` makes the expression that computes each tensor.
`whole_numbers.py` chooses the model whose counters and positions are copied.

`mismatch.py` reports tensors of the models that do not fit, `reference_files.py` the lack of a
config.json or tokenizer, and `tensor_notes.py` tensors that were renamed, copied or left out.
`fingerprint.py` hashes everything that decides the output's bytes; `versions.py` has the versions
that do. `reads.py` lists the ranges of files that a merge will read.

`flat/` matches models without a config.json, and `stacks/` checks layers that slices choose.
`quantised/` plans quantised outputs, and `other_outputs/` adapters and mixtures. `stage_results/`
plans the stages that are kept or spilled, `shards/` packs tensors into files, and `written/` lists
the models that a run writes. `estimates/` predicts memory, disk space, downloads and time.

Problems are collected and raised together. Nothing here reads weights, except small tensors of
whole numbers. This room imports `accounts` and the rooms below it.

The package is not named ``plan``: importing it would replace the function `resumerge.plan`.
"""

from resumerge.planning.check_recipe import check_recipe, read_recipe
from resumerge.planning.estimates.estimate import Estimate, estimate
from resumerge.planning.fingerprint import changes, fingerprint, fingerprint_parts
from resumerge.planning.plan import NUMERICS, Plan, Shard, Unit, Unshared
from resumerge.planning.planner import make_plan

__all__ = [
    "NUMERICS",
    "Estimate",
    "Plan",
    "Shard",
    "Unit",
    "Unshared",
    "changes",
    "check_recipe",
    "estimate",
    "fingerprint",
    "fingerprint_parts",
    "make_plan",
    "read_recipe",
]
