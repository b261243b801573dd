"""The plan of one shard, which a task merges."""

from __future__ import annotations

from dataclasses import replace

from resumerge.accounts import Accounts
from resumerge.planning.plan import Plan
from resumerge.sources.types import REMOTE, Source, SourceFile
from resumerge.tensors import Stored, stored_in


def shard_plan(plan: Plan, number: int) -> Plan:
    """Return a plan of one shard, which has the same bytes as in the whole plan.

    The plan is sent to a task, so it is kept small. It contains the files that the shard reads,
    and the headers of remote files, which downloads are compared with. It omits parts that only
    the planner or the writer of the companions needs.
    """
    shard = plan.shards[number]
    units = tuple(
        replace(unit, number=n, shard=0)
        for n, unit in enumerate(plan.units[shard.first : shard.last])
    )
    read_files = {
        (stored_tensor.source, stored_tensor.file)
        for unit in units
        for stored_tensor in stored_in(unit.expression)
    }
    sources = tuple(
        _with_files(source, {file for n, file in read_files if n == number})
        for number, source in enumerate(plan.sources)
    )
    return replace(
        plan,
        sources=sources,
        stage_models=tuple(_with_files(model, set()) for model in plan.stage_models),
        units=units,
        shards=(replace(shard, number=0, first=0, last=len(units)),),
        stages=(),
        layer_maps=(),
        notes=(),
        reminders=(),
        vocabulary=None,
        chat_template=None,
        tokenizers={},
        mixture=None,
        variants={},
        kept=(),
        left_out=(),
        accounts=Accounts(),
    )


def _with_files(source: Source, read: set[str]) -> Source:
    """Return a source with only the files to read, and with tensors only of remote files."""
    prefixes = {"base/": source.base, "adapter/": source.adapter}
    reduced_parts = {
        prefix: part and _with_files(part, {name.removeprefix(prefix) for name in read})
        for prefix, part in prefixes.items()
    }
    files: dict[str, SourceFile] = {
        name: replace(file, first=b"") for name, file in source.files.items() if name in read
    }
    files_with_tensors = files if source.kind in REMOTE else {}
    return replace(
        source,
        tensors={
            name: tensor
            for name, tensor in source.tensors.items()
            if isinstance(tensor, Stored) and tensor.file in files_with_tensors
        },
        files=files,
        config={},
        stored=None,
        companions={},
        notes=(),
        left_out=(),
        base=reduced_parts["base/"],
        adapter=reduced_parts["adapter/"],
    )
