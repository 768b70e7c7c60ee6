"""The part of the store contract that both back ends implement with the same code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidegate.domain.failure import CallFailure
from tidegate.domain.outcome import Fence
from tidegate.limits.values import Gate
from tidegate.store.access import NewAuditEntry
from tidegate.store.alert_rows import AlertPass, ClaimedNotice
from tidegate.store.common import (
    access,
    alerts,
    approvals,
    control,
    dead,
    deaths,
    doubts,
    due_schedules,
    events,
    failure_states,
    fingerprints,
    gates,
    maps,
    operations,
    overview,
    parents,
    permits,
    provider_jobs,
    reads,
    retention,
    runs,
    schedules,
    sending,
    statistics,
    stats,
    steps,
    totals,
    windows,
    work_counts,
    workers,
)
from tidegate.store.common.store_methods import StoreMethods, read, write
from tidegate.store.controls import ControlReport
from tidegate.store.rows import ProgressUpdate
from tidegate.store.schedule_rows import DeclaredSet, DueSchedule, NewSchedule


class CommonStore(StoreMethods):
    """Store methods over a `Session`. A back end adds `_read`, `_write` and the methods that differ.

    The protocol documents each method.
    """

    # --- tasks ---

    read_tasks = read(reads.read_tasks)
    find_ids = read(reads.find_ids)
    get_result = read(reads.get_result, generic_plan=True)
    get_payload = read(reads.get_payload, generic_plan=True)
    get_history = read(reads.get_history, snapshot=True)
    list_tasks = read(reads.list_tasks, snapshot=True)

    # --- work ---

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        if not notes:
            return []
        return await self._write(
            lambda db: runs.save_progress(db, notes), alone=True, generic_plan=True, notify=True
        )

    async def find_lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        fences = frozenset(known)
        # This read runs as a write, so that it comes after a claim that has not finished.
        return await self._write(lambda db: runs.find_lost_claims(db, worker_id, fences))

    list_cancel_requests = read(runs.list_cancel_requests)
    read_stream_heads = read(reads.read_stream_heads)

    # --- steps ---

    read_steps = read(steps.read_steps, generic_plan=True)

    async def find_doubts(self, limit: int = 500) -> int:
        """Find doubts. If there are none, nothing is locked."""
        if not await self._read(doubts.has_new_doubts, generic_plan=True):
            return 0
        return await self._write(lambda db: doubts.find_doubts(db, limit))

    list_doubts = read(doubts.list_doubts)
    count_open_doubts = read(doubts.count_open_doubts, generic_plan=True)
    resolve_doubts = write(doubts.resolve_doubts)
    list_decided_letters = read(doubts.list_decided_letters)
    find_letters_in_doubt = read(doubts.find_letters_in_doubt)

    # --- events ---

    send_event = write(events.send_event, notify=True)
    wait_for_event = write(events.wait_for_event)

    # --- approvals ---

    ask_approval = write(approvals.ask_approval)
    answer_approval = write(approvals.answer_approval, notify=True)
    list_approvals = read(approvals.list_approvals)

    # --- provider jobs ---

    begin_provider_job = write(provider_jobs.begin_provider_job)
    record_provider_job = write(provider_jobs.record_provider_job)
    read_job_items = read(provider_jobs.read_job_items)
    list_provider_jobs = read(provider_jobs.list_provider_jobs)

    # --- retention ---

    list_final_tasks = read(retention.list_final_tasks)
    list_tasks_with_parts = read(retention.list_tasks_with_parts, snapshot=True)
    export_tasks = read(retention.export_tasks, snapshot=True)

    # --- schedules ---

    async def list_due_schedules(
        self, *, after: tuple[float, str] | None = None, limit: int = 200
    ) -> list[DueSchedule]:
        if after is None and not await self._read(due_schedules.has_due, generic_plan=True):
            return []
        return await self._read(
            lambda db: due_schedules.list_due_schedules(db, after=after, limit=limit), snapshot=True
        )

    async def declare_schedules(
        self, application: str, fingerprint: str, declared: Sequence[NewSchedule], *, grace_seconds: float
    ) -> DeclaredSet:
        """Declare a set of schedules. If the set is in force already, nothing is locked."""
        generation = await self._read(
            lambda db: schedules.generation_in_force(db, application, fingerprint), generic_plan=True
        )
        if generation is not None:
            return DeclaredSet(is_in_force=True, generation=generation)
        return await self._write(
            lambda db: schedules.declare_schedules(
                db, application, fingerprint, declared, grace_seconds=grace_seconds
            )
        )

    add_schedule = write(schedules.add_schedule)
    edit_schedule = write(schedules.edit_schedule)
    remove_schedule = write(schedules.remove_schedule)
    pause_schedule = write(schedules.pause_schedule)
    resume_schedule = write(schedules.resume_schedule)
    list_schedules = read(schedules.list_schedules)
    get_schedule = read(schedules.get_schedule)
    list_ticks = read(schedules.list_ticks)
    list_unfired_ticks = read(schedules.list_unfired_ticks)
    list_last_successes = read(schedules.list_last_successes)

    # --- workers ---

    add_worker = write(workers.add_worker, alone=True)
    list_workers = read(workers.list_workers)
    retire_worker = write(workers.retire_worker, notify=True)
    list_orphans = read(workers.list_orphans)
    record_reaper_pass = write(workers.record_reaper_pass)
    delete_retired_workers = write(workers.delete_retired_workers)

    # --- dead letters ---

    list_dead_letters = read(dead.list_dead_letters, snapshot=True)
    count_dead_letters = read(dead.count_dead_letters)
    count_deaths = read(deaths.count_deaths)
    list_failure_groups = read(deaths.list_failure_groups)
    mark_failure = write(failure_states.mark_failure)
    unmark_failure = write(failure_states.unmark_failure, alone=True)
    list_failure_marks = read(failure_states.list_failure_marks, snapshot=True)
    list_unknown_failures = read(failure_states.list_unknown_failures, snapshot=True)
    is_day_reported = read(failure_states.is_day_reported)
    claim_daily_summary = write(failure_states.claim_daily_summary, repeatable=False)
    find_fingerprints = read(fingerprints.find_fingerprints)

    async def add_fingerprints(self, limit: int = 500) -> int:
        if not await self._read(fingerprints.has_unnamed):
            return 0
        return await self._write(lambda db: fingerprints.add_fingerprints(db, limit))

    counted_since = read(windows.counted_since)
    count_windows = read(windows.count_windows, snapshot=True)
    get_statistics = read(statistics.get_statistics, snapshot=True)
    get_tenant_statistics = read(statistics.get_tenant_statistics, snapshot=True)
    get_totals = read(totals.get_totals, snapshot=True)
    get_work = read(work_counts.get_work, snapshot=True)
    get_overview = read(overview.get_overview, snapshot=True)
    get_top = read(overview.get_top, snapshot=True)
    get_monitoring = read(overview.get_monitoring, snapshot=True)

    # --- operations ---

    add_operation = write(operations.add_operation)
    get_operation = read(operations.get_operation)
    list_operations = read(operations.list_operations, snapshot=True)
    list_open_operations = read(operations.list_open_operations)
    find_operation_ids = read(operations.find_operation_ids)
    list_letters = read(operations.list_letters)
    set_operation_state = write(operations.set_operation_state, notify=True)
    set_operation_note = write(operations.set_operation_note, alone=True)
    choose_letters = write(operations.choose_letters)
    list_strata = read(operations.list_strata)
    begin_canary = write(operations.begin_canary)
    read_feed = read(sending.read_feed, snapshot=True)

    async def record_outcomes(self, operation_id: str, limit: int = 500) -> int:
        """Record outcomes. If there are none, nothing is locked."""
        if not await self._read(lambda db: sending.has_outcomes(db, operation_id)):
            return 0
        return await self._write(lambda db: sending.record_outcomes(db, operation_id, limit))

    undo_letters = write(sending.undo_letters, notify=True)

    async def delete_old_operations(self, kept_seconds: float, limit: int = 1_000) -> int:
        """Delete old operations. If there are none, nothing is locked."""
        if await self._read(lambda db: operations.find_old_operation(db, kept_seconds)) is None:
            return 0
        return await self._write(lambda db: operations.delete_old_operations(db, kept_seconds, limit))

    # --- maps ---

    get_map = read(maps.get_map)
    find_map = read(maps.find_map)
    list_maps = read(maps.list_maps)
    find_map_ids = read(maps.find_map_ids)
    list_open_maps = read(maps.list_open_maps, generic_plan=True)
    count_map_items = read(maps.count_map_items, snapshot=True)
    count_dead_items = read(maps.count_dead_items, snapshot=True)
    find_unfinished_item = read(maps.find_unfinished_item)
    list_cancellable_items = read(maps.list_cancellable_items)
    list_map_items = read(maps.list_map_items)
    list_map_results = read(maps.list_map_results)
    list_dead_items = read(maps.list_dead_items)
    move_map_cursor = write(maps.move_map_cursor, alone=True)
    cancel_map = write(maps.cancel_map, alone=True, repeatable=False)

    async def delete_old_maps(self, kept_seconds: float, limit: int = 100) -> int:
        """Delete old maps. If there are none, nothing is locked."""
        if not await self._read(lambda db: maps.find_old_maps(db, kept_seconds, 1)):
            return 0
        return await self._write(lambda db: maps.delete_old_maps(db, kept_seconds, limit))

    # --- parents ---

    find_ended_parents = read(parents.find_ended_parents, snapshot=True)
    admit = write(parents.admit, notify=True)
    remove_parents = write(parents.remove_parents, alone=True)
    list_parents = read(parents.list_parents)

    async def admit_left_behind(self, limit: int = 500) -> int:
        """Admit tasks that wait for none. If there are none, nothing is locked."""
        if not await self._read(lambda db: db.column(db.sql("admit")["left_behind"], 1)):
            return 0
        return await self._write(lambda db: parents.admit_left_behind(db, limit), notify=True)

    # --- counts and manifests ---

    get_queue_stats = read(stats.get_queue_stats, snapshot=True)
    save_manifest = write(stats.save_manifest, alone=True)
    load_manifests = read(stats.load_manifests)

    # --- access ---

    add_token = write(access.add_token, alone=True)
    find_token = read(access.find_token)
    list_tokens = read(access.list_tokens)
    revoke_token = write(access.revoke_token, alone=True)

    async def add_audit_entries(self, entries: Sequence[NewAuditEntry]) -> None:
        if entries:
            await self._write(lambda db: access.add_audit_entries(db, entries), alone=True)

    list_audit_entries = read(access.list_audit_entries)

    # --- control ---

    pause = write(control.pause, alone=True, notify=True)
    resume = write(control.resume, alone=True, notify=True)
    list_pauses = read(control.list_pauses)
    set_control = write(control.set_control, alone=True, repeatable=False)
    list_controls = read(control.list_controls)

    async def report_controls(self, reports: Sequence[ControlReport]) -> None:
        if reports:
            await self._write(lambda db: control.report_controls(db, reports), alone=True)

    list_control_reports = read(control.list_control_reports)
    set_worker_slots = write(control.set_worker_slots, alone=True)
    set_worker_code = write(control.set_worker_code, alone=True)

    # --- alerts ---

    async def begin_alert_pass(self, evaluator: str, *, interval_seconds: float) -> AlertPass | None:
        # Every process asks often, so most of the time nothing is locked.
        if not await self._read(lambda db: alerts.is_pass_due(db, interval_seconds), generic_plan=True):
            return None
        return await self._write(
            lambda db: alerts.begin_alert_pass(db, evaluator, interval_seconds=interval_seconds),
            alone=True,
            repeatable=False,
        )

    end_alert_pass = write(alerts.end_alert_pass)
    get_last_alert_pass = read(alerts.get_last_alert_pass)
    list_current_episodes = read(alerts.list_current_episodes)
    list_ended_episodes = read(alerts.list_ended_episodes)
    mute_alerts = write(alerts.mute_alerts, alone=True)
    unmute_alerts = write(alerts.unmute_alerts, alone=True)
    list_alert_mutes = read(alerts.list_alert_mutes)
    add_notices = write(alerts.add_notices, alone=True)

    async def claim_notices(
        self, sinks: Collection[str], *, lease_seconds: float, limit: int = 50
    ) -> list[ClaimedNotice]:
        if not sinks or not await self._read(alerts.has_due_notices, generic_plan=True):
            return []
        return await self._write(
            lambda db: alerts.claim_notices(db, sinks, lease_seconds=lease_seconds, limit=limit),
            alone=True,
            repeatable=False,
        )

    finish_notice = write(alerts.finish_notice, alone=True)
    retry_notice = write(alerts.retry_notice, alone=True)
    count_unsent_notices = read(alerts.count_unsent_notices)
    disable_sink = write(alerts.disable_sink, alone=True)
    enable_sink = write(alerts.enable_sink, alone=True)
    list_disabled_sinks = read(alerts.list_disabled_sinks)
    list_worker_ends = read(alerts.list_worker_ends)
    list_busy_tasks = read(alerts.list_busy_tasks)
    list_newly_final_tasks = read(alerts.list_newly_final_tasks)
    get_connections = read(alerts.get_connections)

    # --- upstreams ---

    declare_limits = write(gates.declare_limits)
    list_gates = read(gates.rows)
    list_upstreams = read(gates.list_upstreams, snapshot=True)
    set_limits = write(gates.set_limits, notify=True)
    set_function_limits = write(gates.set_function_limits, notify=True)
    park_gate = write(gates.park_gate, notify=True)
    open_gate = write(gates.open_gate, notify=True)
    request_probe = write(gates.request_probe, notify=True)
    acquire_slot = write(permits.acquire_slot, repeatable=False)
    settle_tokens = write(gates.settle_tokens, repeatable=False)
    release_permits = write(permits.release, alone=True, notify=True)
    extend_permits = write(permits.extend, alone=True)

    async def report_failure(self, upstream: str, failure: CallFailure) -> Gate:
        effect = await self._write(lambda db: gates.report_failure(db, upstream, failure))
        return effect.gate

    async def report_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        await self._write(lambda db: gates.apply_probe(db, upstream, seconds, is_good=is_good), notify=True)

    report_success = write(gates.report_success)
    report_limits = write(gates.record_limits)
    list_retry_budgets = read(gates.list_retry_budgets, snapshot=True)
