"""The phases of `run` and `resume`, in order: one row for a new run, one for an existing run.

new run:  find -> open and plan -> check -> create                                    | recover
existing: find -> adopt -> open and plan -> compare -> reconcile (mirror) -> check    | -> execute
                                                                                      | -> finish
                                                                                      | -> publish
The four phases after both rows are in `attempt`. docs/architecture.md ("The phases of a run") is
the reference: what each phase does, and when a run that exists leaves its row.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path

from resumerge.engine.changes import changes_of, kept_in_words, warnings_of
from resumerge.engine.checks.cluster import check_cluster
from resumerge.engine.checks.companions import check_companions
from resumerge.engine.checks.disk import check_disk
from resumerge.engine.checks.drift import check_contents, check_source_drift, is_corrected_method
from resumerge.engine.checks.new_run import check_new
from resumerge.engine.context import RunContext
from resumerge.engine.execute.budget import ResourceBudget, resource_budget
from resumerge.engine.lifecycle.adopt import (
    AdoptedRun,
    adopt,
    keep_options,
    plan_adopted,
    replace_run,
)
from resumerge.engine.lifecycle.attempt import Attempt
from resumerge.engine.lifecycle.create_run import create_run
from resumerge.engine.lifecycle.find import FinishedInMirror, Found, NewRun
from resumerge.engine.lifecycle.finished import (
    is_finished,
    report_finished,
    report_finished_elsewhere,
    use_finished_mirror,
)
from resumerge.engine.mirror_session.checks import check_apart, check_reachable
from resumerge.engine.mirror_session.reconcile import Reconciler
from resumerge.engine.mirror_session.session import MirrorSession
from resumerge.engine.opening.pinned_plan import pinned_plan
from resumerge.engine.recovery.touched_sources import record_touched
from resumerge.engine.recovery.uploaded import adopt_uploaded
from resumerge.engine.reporter import Result
from resumerge.engine.resources.lock import output_lock
from resumerge.errors import DoubtfulNumbers, InputError, Reason, Resumable, unavailable
from resumerge.ledger import Ledger
from resumerge.ledger.run_store import named_output
from resumerge.mirror.stores.buckets.store import BucketStore
from resumerge.output_path import OutputPath
from resumerge.planning import Estimate, Plan

_COMPUTED_AGAIN = (
    "the code of a merge method has changed since it failed: everything is computed again with it"
)


def complete_run(context: RunContext, found: Found) -> Result:
    """Create or resume the run that `find` returned, and complete it; report a run that is done.

    Raises:
        InputError: the run is refused; nothing was written or abandoned.
        Interrupted: a signal stopped the run.
        Resumable: the run cannot continue now.
        DoubtfulNumbers: the model is complete, but there are warnings about its numbers, and
            `--strict` turns them into an error.
    """
    result = _run(context, found)
    if context.options.strict and result.ledger is not None:
        with closing(Ledger(result.ledger, read_only=True)) as ledger:
            if warnings := warnings_of(changes_of(ledger)):
                raise DoubtfulNumbers(result.where, tuple(warnings))
    return result


def _run(context: RunContext, found: Found) -> Result:
    if isinstance(found, NewRun):
        return _begin(context, found)
    if isinstance(found, FinishedInMirror):
        return use_finished_mirror(context, found)
    with adopt(context, found) as run:
        if run.replaced:
            return _begin(context, replace_run(context, run))
        return _resume(context, run)


def _begin(
    context: RunContext, new: NewRun, planned: tuple[Plan, Estimate] | None = None
) -> Result:
    """Check and create a new run, and merge its units.

    Args:
        context: its options apply to the new run; creating the run sets its `run_id`.
        new: the run to create; its `abandon` is called after every check has passed.
        planned: the run's plan and estimate; None to make them here.
    """
    # open and plan
    plan, estimate = planned or pinned_plan(
        context, new.recipe, new.out, new.pins, new.created_with
    )
    # check
    bytes_on_disk = new.swept.nbytes if new.swept else 0
    check_new(context, plan, estimate, new.out, replaced=new.replaced, bytes_on_disk=bytes_on_disk)
    budget = resource_budget(context, plan, estimate)
    plan = plan.with_reminders(check_companions(context, plan, new.out.model))
    # create
    new.abandon()
    with create_run(context, plan, new) as ledger:
        if new.swept is not None:
            with context.stop.deferred():
                new.swept.move_into(ledger, new.out.folder, context.storage)
        return _merge(context, plan, ledger, new.out, budget, resumed=False)


def _resume(context: RunContext, run: AdoptedRun) -> Result:
    """Merge a run's pending units; report it if it is done; replace it if a method was fixed."""
    # open and plan
    plan, estimate = plan_adopted(context, run)
    # compare
    touched_sources = check_source_drift(context, run.record, plan, estimate, run.ledger)
    record_touched(touched_sources, plan.sources, run.ledger, context.reporter)
    if is_finished(context, run, plan):
        return report_finished(context, run)
    if is_corrected_method(run.record, plan, run.ledger):
        context.reporter.note(_COMPUTED_AGAIN)
        return _begin(context, replace_run(context, run), (plan, estimate))
    if problems := check_cluster(context.options, plan, estimate, run.out):
        raise InputError(problems)
    if run.mirror is None:
        return _check_and_merge(context, run, plan, estimate)
    # reconcile
    _check_mirror(run.out, run.mirror, named=run.mirror_named)
    reconciler = Reconciler(run.ledger, run.out.folder, run.mirror, context.storage)
    manifest = reconciler.reconcile(may_be_empty=run.mirror_named)
    if manifest is not None:
        return report_finished_elsewhere(context, run, run.mirror, manifest)
    _adopt_uploaded(context, run, plan, run.mirror)
    # Adopted shards have hashes of inputs that other machines read: compare local models again.
    touched_sources = check_contents(context, run.record, plan, estimate, run.ledger)
    record_touched(touched_sources, plan.sources, run.ledger, context.reporter)
    return _check_and_merge(context, run, plan, estimate, reconciler)


def _check_and_merge(
    context: RunContext,
    run: AdoptedRun,
    plan: Plan,
    estimate: Estimate,
    reconciler: Reconciler | None = None,
) -> Result:
    """Check disk space, memory and companions of an existing run, and merge its pending units.

    Args:
        context: its options include those that the command inherits from the run.
        run: the run; its ledger already agrees with its mirror.
        plan: the plan that was made again from the run's pinned sources.
        estimate: the estimate of `plan`, from which memory and threads are decided.
        reconciler: the reconciler that brought ledger and mirror into agreement; None without a
            mirror.
    """
    # check
    only_in_mirror = [] if reconciler is None else reconciler.compare()
    _check_space(context, run.out.folder, plan, only_in_mirror)
    budget = resource_budget(context, plan, estimate, memory_wait=context.options.memory_wait)
    plan = plan.with_reminders(_check_companions(context, plan, run.out))
    context.storage.make_folder(run.out.folder)
    with output_lock(run.out):
        keep_options(context, run)
        if reconciler is not None and context.options.bring_back:
            reconciler.bring_back(only_in_mirror)
        return _merge(
            context,
            plan,
            run.ledger,
            run.out,
            budget,
            resumed=True,
            restored=run.restored,
            interrupted=run.record["state"] != "done",
        )


def _merge(
    context: RunContext,
    plan: Plan,
    ledger: Ledger,
    out: OutputPath,
    budget: ResourceBudget,
    *,
    resumed: bool,
    restored: bool = False,
    interrupted: bool = False,
) -> Result:
    """Recover, execute, finish and publish, as one new attempt."""
    assert context.run_id is not None
    context.reporter.planned(context.run_id, plan, budget.predicted, resumed=resumed)
    context.reporter.doing("beginning")
    replicator = None
    if context.options.mirror is not None:
        mirror = context.open_mirror(context.options.mirror)
        replicator = mirror.replicator(ledger, out.folder, context.options, context.storage)
    attempt = Attempt(
        context,
        plan,
        ledger,
        out,
        budget,
        replicator=replicator,
        restored=restored,
        interrupted=interrupted,
    )
    try:
        plan, seconds = attempt.run()
    finally:
        context.runs.remove_unused(out.path)
    mirror_url = replicator.store.url if replicator is not None else None
    result = _result(context, plan, ledger, named_output(out.path, mirror_url), mirror_url, seconds)
    context.reporter.done(result)
    return result


def _result(
    context: RunContext,
    plan: Plan,
    ledger: Ledger,
    output: Path | str,
    mirror: str | None,
    merging_seconds: float,
) -> Result:
    """Return the result of a finished merge, for the reporter and the caller.

    Args:
        context: the context of the command that merged; with `--strict`, warnings are left to the
            caller.
        plan: the plan that was carried out, with the final ranks of an adapter.
        ledger: the run's ledger; its last attempt is the attempt of this merge.
        output: the output as the user named it, a path or an address.
        mirror: the mirror's address; None without a mirror.
        merging_seconds: seconds that this attempt spent merging.
    """
    assert context.run_id is not None
    attempts = ledger.attempts.all()
    started_at, ended_at = (
        datetime.fromisoformat(attempts[-1][column]) for column in ("started", "ended")
    )
    changes = changes_of(ledger)
    kept_share_notes = [kept_in_words(changes)] if plan.adapter and changes else []
    number_warnings = [] if context.options.strict or plan.adapter else warnings_of(changes)
    return Result(
        context.run_id,
        output,
        ledger.path,
        merging_seconds=merging_seconds,
        mirror=mirror,
        notes=(*plan.reminders, *kept_share_notes, *number_warnings),
        output_bytes=plan.output_bytes,
        peak_rss=max(attempt["peak_rss"] or 0 for attempt in attempts),
        seconds=(ended_at - started_at).total_seconds(),
        accounts=plan.accounts,
        changes=() if plan.adapter else tuple(changes),
    )


def _adopt_uploaded(
    context: RunContext, run: AdoptedRun, plan: Plan, mirror: MirrorSession
) -> None:
    """Journal the shards that a cluster's tasks uploaded to the mirror and nobody journaled."""
    if isinstance(mirror.store, BucketStore):
        lease = mirror.acquire_lease(run.folder.name)
        with closing(context.shard_files(plan, run.out.folder)) as files:
            adopt_uploaded(plan, run.ledger, files, mirror.store, lease.token, lease.check)


def _check_companions(context: RunContext, plan: Plan, out: OutputPath) -> list[str]:
    """Check the companions of an existing run; a problem raises `Resumable`, not `InputError`."""
    try:
        return check_companions(context, plan, out.model)
    except InputError as error:
        raise unavailable(error) from error


def _check_mirror(out: OutputPath, mirror: MirrorSession, *, named: bool) -> None:
    """Check that the mirror lies apart from the output, and that it can be reached.

    Raises:
        InputError: the mirror cannot be used, or the command names it and it cannot be reached.
        Resumable: the command names no mirror, and the run's own mirror cannot be reached now.
    """
    if problems := check_apart(out, mirror):
        raise InputError(problems)
    if problems := check_reachable(mirror):
        raise InputError(problems) if named else Resumable(Reason.MIRROR, str(problems[0]))


def _check_space(context: RunContext, folder: Path, plan: Plan, only_in_mirror: list[str]) -> None:
    """Check that the disk has space for all shards that will be on it.

    Raises:
        Resumable: the disk has too little space.
    """
    if context.frees_shards:
        return
    files = context.shard_files(plan, folder)
    shards_elsewhere = () if context.options.bring_back else only_in_mirror
    needed_bytes = sum(
        files.unallocated(shard) for shard in plan.shards if shard.name not in shards_elsewhere
    )
    if problems := check_disk(folder, needed_bytes, cluster=context.options.ray is not None):
        raise Resumable(Reason.DISK_FULL, str(problems[0]))
