"""Machines that are wrong on purpose: each must be found by simulating."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import trio
from msgspec.structs import replace

from gspc_trio.components.journal import Journal
from gspc_trio.components.rts_contact import RtsContact
from gspc_trio.components.takeover import Takeover
from gspc_trio.core.exchange import Demand, Finished, Interrupt, Release
from gspc_trio.core.fence import Fence
from gspc_trio.core.phases import Phases
from gspc_trio.core.rif import Rif
from gspc_trio.core.rm import ResourceManager, lapse
from gspc_trio.core.rm.jobs import Want
from gspc_trio.core.rm.pool import Pool
from gspc_trio.core.rts import Rts
from gspc_trio.core.rts.lifecycle import LifeCycle
from gspc_trio.core.scheduler import grants as scheduler_grants
from gspc_trio.core.scheduler import machine as scheduler_machine
from gspc_trio.core.task import Reason
from gspc_trio.core.verdict import Verdict
from gspc_trio.core.worker import Worker
from gspc_trio.protocol import handshake
from gspc_trio.protocol.session import Session
from gspc_trio.workflow.job import JobMachine
from gspc_trio.workflow.journal import JournaledEngine, Replay

Patch = Callable[[Any, str, Any], None]
"""``monkeypatch.setattr``."""


def double_grant(patch: Patch) -> None:
    """A resource that is held is given to another job, too."""
    take, numbers = Pool.take, count(1)

    def twice(pool: Pool, queue: Any) -> Any:
        vertex = take(pool, queue)
        if vertex is None and next(numbers) % 5 == 0:
            return next((one for one in pool.resources.values() if one.queue is queue), None)
        return vertex

    patch(Pool, "take", twice)


def forgotten_release(patch: Patch) -> None:
    """The resource manager overhears every third release."""
    release, numbers = ResourceManager._release, count(1)

    def overhear(rm: ResourceManager, event: Release, now: float, actions: list[Any]) -> None:
        if next(numbers) % 3:
            release(rm, event, now, actions)

    patch(ResourceManager, "_release", overhear)


def grant_kept_for_ever(patch: Patch) -> None:
    """A scheduler forgets a grant without giving it back."""
    patch(scheduler_grants, "release", scheduler_grants.forget)


def lost_finish(patch: Patch) -> None:
    """A scheduler loses every twentieth report."""
    finished, numbers = scheduler_machine.finished, count(1)

    def lose(state: Any, event: Finished) -> None:
        kept = tuple(outcome for outcome in event.outcomes if next(numbers) % 20)
        finished(state, Finished(event.job, event.resource_id, kept))

    patch(scheduler_machine, "finished", lose)


def stale_attempt_accepted(patch: Patch) -> None:
    """A scheduler takes what an attempt says that it has given up."""
    finished = scheduler_machine.finished

    def accept(state: Any, event: Finished) -> None:
        tasks = state.tasks
        outcomes = tuple(
            replace(outcome, attempt=tasks[outcome.task_id].attempt) if outcome.task_id in tasks else outcome
            for outcome in event.outcomes
        )
        finished(state, Finished(event.job, event.resource_id, outcomes))

    patch(scheduler_machine, "finished", accept)


def credit_leak(patch: Patch) -> None:
    """A grant does not use up credit."""
    use_credit, numbers = Want.use_credit, count(1)

    def leak(want: Want) -> None:
        if next(numbers) % 10:
            use_credit(want)

    patch(Want, "use_credit", leak)


def early_free(patch: Patch) -> None:
    """What a dead job holds is free before its work is known to have stopped."""
    job_gone = lapse.job_gone

    def free(state: Any, job: Any, _fenced: bool, now: float, actions: list[Any]) -> None:
        job_gone(state, job, True, now, actions)

    patch(lapse, "job_gone", free)


def fence_ignores_relatives(patch: Patch) -> None:
    """A RIF honours a grant although a newer one was used on a relative."""

    def objection(fence: Fence, resource_id: str, grant_id: Any) -> str:
        lapsed = grant_id <= fence._closed[resource_id] or grant_id < fence.newest(resource_id)
        return "it is old" if lapsed else ""

    patch(Fence, "objection", objection)


def no_fence(patch: Patch) -> None:
    """A RIF honours any grant."""
    patch(Fence, "objection", lambda _fence, _resource_id, _grant_id: "")


def fate_eats_an_attempt(patch: Patch) -> None:
    """What was overlapped with a task that failed counts as failed itself."""
    stop_slot = Worker._stop_slot

    def fail(worker: Worker, slot: Any, verdict: Verdict) -> None:
        fate = verdict.error.kind == "fate"
        stop_slot(worker, slot, replace(verdict, reason=Reason.FAILED) if fate else verdict)

    patch(Worker, "_stop_slot", fail)


def ancestor_freed_too_early(patch: Patch) -> None:
    """A resource is free again when the first of those in it is given back."""
    free = Pool.free

    def free_all(pool: Pool, vertex: Any) -> None:
        free(pool, vertex)
        for ancestor in vertex.place.ancestors:
            ancestor.below = 0

    patch(Pool, "free", free_all)


def same_epoch_again(patch: Patch) -> None:
    """A restarted resource manager counts its grants from the beginning."""
    begin = ResourceManager.__init__

    def restart(rm: ResourceManager, _epoch: int, *arguments: Any) -> None:
        begin(rm, 1, *arguments)

    patch(ResourceManager, "__init__", restart)


def duplicate_inject(patch: Patch) -> None:
    """A job gives its engine every twentieth result twice."""
    done, numbers = JobMachine._done, count(1)

    def twice(job: JobMachine, event: Any) -> Any:
        through = done(job, event)
        if next(numbers) % 20 == 0:
            done(job, event)
        return through

    patch(JobMachine, "_done", twice)


def lost_rif_unsaid(patch: Patch) -> None:
    """The run-time system does not tell the resource manager that a RIF is lost."""
    withdraw = LifeCycle._withdraw

    def keep_quiet(lives: LifeCycle, rif: Any, reason: str, out: list[Any]) -> None:
        withdraw(lives, rif, reason, [])
        del out

    patch(LifeCycle, "_withdraw", keep_quiet)


def ambiguous_loss_repeated(patch: Patch) -> None:
    """A task that may not run again does when its first attempt is lost."""
    lose = scheduler_grants.lose

    def again(state: Any, entry: Any, lost: Any, resource_id: str) -> None:
        options = entry.task.options
        entry.task = replace(entry.task, options=replace(options, may_rerun=True))
        lose(state, entry, lost, resource_id)

    patch(scheduler_grants, "lose", again)


def attempt_number_kept(patch: Patch) -> None:
    """The second attempt of a task has the number of the first."""
    again = scheduler_grants.again

    def keep(state: Any, entry: Any, detail: str, delay_s: float = 0.0) -> None:
        entry.attempt = max(0, entry.attempt - 1)
        again(state, entry, detail, delay_s)

    patch(scheduler_grants, "again", keep)


def any_token_will_do(patch: Patch) -> None:
    """Whoever connects is let in."""
    patch(handshake, "proof_holds", lambda *_: True)


def silence_unnoticed(patch: Patch) -> None:
    """A session waits for ever for a peer that is gone without a word."""
    tick = Session._tick

    def patient(session: Session, event: Any, now: float) -> list[Any]:
        session._heard_s = now
        return tick(session, event, now)

    patch(Session, "_tick", patient)


def job_goes_on_unheard(patch: Patch) -> None:
    """A RIF that was told to end a job's work says that it has, and lets it run."""

    def revoke(rif: Rif, event: Any) -> None:
        from gspc_trio.core.exchange import Revoked

        rif._actions.append(Revoked(event.grant_id, event.resources))

    patch(Rif, "_revoke", revoke)
    patch(Rif, "_end_job", lambda _rif, _event: None)


def withdrawal_lost_in_crossing(patch: Patch) -> None:
    """The resource manager overlooks that a job withdraws its demand while a grant is on its way to it."""
    demand = ResourceManager._demand

    def overlook(rm: ResourceManager, event: Demand, now: float, actions: list[Any]) -> None:
        job = rm._state.jobs.get(event.job)
        want = job.wants.get(event.shape) if job is not None else None
        crossing = want is not None and any(grant_id > event.seen for grant_id in want.sent)
        if event.credit or not crossing:
            demand(rm, event, now, actions)

    patch(ResourceManager, "_demand", overlook)


def interrupt_lost_in_crossing(patch: Patch) -> None:
    """The resource manager overlooks an interrupt while a grant is on its way to that job."""
    interrupt = ResourceManager._interrupt

    def overlook(rm: ResourceManager, event: Interrupt, now: float, actions: list[Any]) -> None:
        if not any(want.sent for want in rm._state.job(event.job).wants.values()):
            interrupt(rm, event, now, actions)

    patch(ResourceManager, "_interrupt", overlook)


def durable_too_early(patch: Patch) -> None:
    """A journal says that results are durable before they are written."""

    async def run(journal: Journal, kept: Callable[[int], None]) -> None:
        while True:
            if journal._rows:
                rows, journal._rows = journal._rows, []
                kept(len(rows))
                await journal._write(journal.engine, rows)
            await trio.sleep(0.01)

    patch(Journal, "run", run)


def end_of_work_forgotten(patch: Patch) -> None:
    """A journal does not say when inline transitions have fired."""
    close = JournaledEngine._close_step

    def forget(engine: JournaledEngine) -> None:
        engine._exhausted = False
        close(engine)

    patch(JournaledEngine, "_close_step", forget)


def orphans_for_ever(patch: Patch) -> None:
    """The run-time system waits without end for who goes on for a job."""
    tick = Rts._tick

    def wait(rts: Rts, event: Any, now: float, out: list[Any]) -> None:
        jobs = rts._lives.jobs
        for job, entry in list(jobs.items()):
            if entry.away_until is not None:
                jobs[job] = replace(entry, away_until=math.inf)
        tick(rts, event, now, out)

    patch(Rts, "_tick", wait)


def heir_waits_for_what_has_come(patch: Patch) -> None:
    """Who goes on for a job overlooks that a RIF has nothing more for it."""
    report = Takeover.report

    def overlook(takeover: Takeover, rif_id: str, orphans: Any) -> None:
        if orphans is None or not orphans.over:
            report(takeover, rif_id, orphans)

    patch(Takeover, "report", overlook)


def tasks_begun_twice_after_a_restart(patch: Patch) -> None:
    """A job that goes on with its journal takes a result in for a task that has one."""
    finish = Replay.finish

    def forget(replay: Replay) -> Any:
        replay._outcomes.clear()
        return finish(replay)

    patch(Replay, "finish", forget)


def parted_rif_waits(patch: Patch) -> None:
    """A RIF whose run-time system has parted from it awaits it, and goes on with its work."""
    begin = RtsContact.__init__

    def stubborn(contact: RtsContact, *arguments: Any, obeys: bool = False) -> None:
        del obeys
        begin(contact, *arguments)

    patch(RtsContact, "__init__", stubborn)


def names_given_again(patch: Patch) -> None:
    """A run-time system that comes back names its jobs like those of before."""
    skip = Rts.skip_names
    patch(Rts, "skip_names", lambda rts, rifs, _jobs: skip(rts, rifs, 0))


def only_the_tail_is_taken_back(patch: Patch) -> None:
    """A RIF counts on a compute process having read all that was handed to it before what is taken back."""
    take_back = Phases.take_back

    def tail(phases: Phases, keys: Any, now: float) -> Any:
        handed = [(submission.task_id, submission.attempt) for submission in phases.handed]
        return take_back(phases, keys, now) if not keys or handed[-len(keys) :] == list(keys) else None

    patch(Phases, "take_back", tail)


VARIANTS = [
    double_grant,
    forgotten_release,
    grant_kept_for_ever,
    lost_finish,
    stale_attempt_accepted,
    credit_leak,
    early_free,
    fence_ignores_relatives,
    no_fence,
    fate_eats_an_attempt,
    ancestor_freed_too_early,
    same_epoch_again,
    duplicate_inject,
    lost_rif_unsaid,
    ambiguous_loss_repeated,
    attempt_number_kept,
    any_token_will_do,
    silence_unnoticed,
    job_goes_on_unheard,
    withdrawal_lost_in_crossing,
    interrupt_lost_in_crossing,
    durable_too_early,
    end_of_work_forgotten,
    orphans_for_ever,
    heir_waits_for_what_has_come,
    tasks_begun_twice_after_a_restart,
    parted_rif_waits,
    names_given_again,
    only_the_tail_is_taken_back,
]
