"""The worker of one resource (GSPC19 2.3): overlaps staging and compute, and links the fate of what overlaps.

Which attempt enters which phase is in ``phases``; here is how attempts end. One that is to
be stopped gets a verdict, which becomes its outcome when nothing of it runs any more, unless it ends before.
"""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.components.worker import events as work
from gspc_trio.components.worker.events import AttemptKey, WorkerAction, WorkerEvent
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, TakeBack
from gspc_trio.components.worker.phases import AttemptPhase, Phases, Slot, key_of
from gspc_trio.components.worker.verdict import CANCELLED, FATE, NOT_MADE, TAKEN_BACK, Verdict, refusal
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.records.facts import WorkerChanged

QUEUE_ITEMS_MAX = 16_384
"""Most attempts that a worker takes at one time; more are refused."""


class Worker(MachineBase[WorkerEvent, WorkerAction]):
    """Machine of one worker.

    It serves one job at a time, under one grant; its shell carries out the actions and answers.

    Args:
        resource: what it stands for.

    Attributes:
        closed: whether it takes no more work for good.
    """

    noun = "a worker"

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        self.resource = resource
        self.grant_id: GrantId = NO_GRANT
        self.closed: bool = False
        self._fate = True
        self._phases = Phases(resource.resource_id)
        self._verdicts: dict[AttemptKey, Verdict] = {}
        self._wanted_back: set[AttemptKey] = set()
        self._killing = False
        self._retracting = False
        self._opening = False
        self._loss: work.ComputeLost | None = None
        self._stopped = False
        self._ended: list[Outcome] = []

    # The machine's contract

    def settle(self) -> None:
        """Report what has ended, let others enter the phases that are free, and say when nothing is left."""
        phases = self._phases
        if phases.is_cut:
            self._end_all(phases.drop_unmade(), NOT_MADE)
            phases.is_cut = False
        if self._ended:
            # Whoever hears of the end hears of it before anything that follows from it.
            self.actions.insert(0, Finished(self.job, self.resource.resource_id, tuple(self._ended)))
            self._ended.clear()
        if self._verdicts and not self._killing and key_of(phases.handed[0]) in self._verdicts:
            self._killing = True
            self.actions.append(work.Kill(self.resource.resource_id, self.job))
        self.actions.extend(phases.advance(not (self._killing or self._retracting), self._killing, self.now))
        if phases.job and not self.busy:
            self._become_idle()
        if self.closed and not self._stopped and not self.busy:
            self._stopped = True
            self.actions.append(WorkerChanged(self.now, self.resource.resource_id, "stopped"))
            self.actions.append(work.WorkerStopped(self.resource.resource_id))

    def deadline(self) -> float | None:
        """Return when the attempt in compute has used up its ``timeout_s``, or None."""
        head = self._phases.head
        if head is None or self._killing or self._opening or head.options.timeout_s is None:
            return None
        return self._phases.head_since_s + head.options.timeout_s

    @property
    def job(self) -> JobId:
        """The job that it works for, or ""."""
        return self._phases.job

    @property
    def attempts(self) -> int:
        """Number of attempts that have not ended."""
        return len(self._phases.present)

    @property
    def busy(self) -> bool:
        """Whether it has an attempt, or a compute process of which it awaits an answer."""
        return bool(self._phases.present) or self._killing or self._retracting

    def status(self, key: AttemptKey) -> AttemptPhase | None:
        """Return where an attempt is (WRK-1); see :meth:`Phases.status`."""
        return self._phases.status(key)

    def check(self) -> None:
        """Assert every invariant."""
        self._phases.check()
        handed = {key_of(submission) for submission in self._phases.handed}
        head = self._phases.head
        assert set(self._verdicts) <= handed, "a verdict about what is not handed over"
        doomed = head is not None and key_of(head) in self._verdicts
        assert not doomed or self._killing, "nobody ends the task in compute"
        assert self._wanted_back <= handed, "wanted back, but not handed over"
        assert not self._wanted_back or self._retracting or self._killing, "nobody takes back"
        assert not self._loss or self._retracting, "a loss was not seen to"
        assert bool(self.job) == self.busy, "it has a job exactly while it is busy"
        assert not self._ended, "an outcome was not reported"
        assert not self.actions, "an action was not returned"
        assert self._stopped == (self.closed and not self.busy), "it stops when it has nothing left"

    def _become_idle(self) -> None:
        self._phases.job, self.grant_id = "", NO_GRANT
        if not self.closed:
            self.actions.append(WorkerChanged(self.now, self.resource.resource_id, "idle"))
        self.actions.append(work.WorkerIdle(self.resource.resource_id))

    # Work comes

    @handles(work.Assign)
    def _assign(self, event: work.Assign) -> None:
        submit = event.submit
        why = self._why_not(event)
        if why:
            self.actions.append(refusal(submit, f"{self.resource.resource_id} {why}"))
            return
        new = {(s.task_id, s.attempt): s for s in submit.submissions}
        phases = self._phases
        if len(new) != len(submit.submissions) or not phases.present.keys().isdisjoint(new):
            raise IllegalEvent(f"{self.resource.resource_id} was given an attempt of job {submit.job} twice")
        if not new:
            return
        if not self.busy:
            phases.job, self.grant_id = submit.job, submit.grant_id
            self._fate, phases.inputs_bytes_max = event.fate, event.inputs_bytes_max
            phases.stage_ins_max = event.stage_ins_max
            phases.alone = len(submit.resources) > 1
            if phases.made_for != submit.job:
                phases.made_for, phases.made = submit.job, None
            self.actions.append(WorkerChanged(self.now, self.resource.resource_id, "busy", submit.job))
        phases.present.update(new)
        phases.waiting.extend(submit.submissions)
        # Those behind the first take what is made here, or nothing.
        phases.is_cut = phases.is_cut or submit.submissions[0].after is not None

    def _why_not(self, event: work.Assign) -> str:
        submit, resource = event.submit, self.resource
        if submit.resources[0] != resource.resource_id:
            return f"was given tasks for {submit.resources[0]}"
        if submit.resource_class and submit.resource_class != resource.resource_class:
            return f"is a {resource.resource_class}, but the tasks are for a {submit.resource_class}"
        if self.closed:
            return "has been removed"
        if self.busy and (submit.job, submit.grant_id) != (self.job, self.grant_id):
            return f"still works for job {self.job} under grant {self.grant_id}"
        if len(self._phases.present) + len(submit.submissions) > QUEUE_ITEMS_MAX:
            return f"takes at most {QUEUE_ITEMS_MAX} tasks at one time"
        return ""

    # Attempts end by themselves

    @handles(work.Computed)
    def _on_computed(self, event: work.Computed) -> None:
        phases, handed = self._phases, self._phases.handed
        outcomes = event.outcomes
        known = len(outcomes) <= len(handed)
        for outcome, submission in zip(outcomes, handed, strict=False):
            known = known and outcome.task_id == submission.task_id and outcome.attempt == submission.attempt
        if not known:
            raise IllegalEvent(f"{self.resource.resource_id} computed what it was not given next")
        for outcome in outcomes:
            submission = handed.popleft()
            key = (outcome.task_id, outcome.attempt)
            verdict = self._verdicts.pop(key, None) if self._verdicts else None
            self._wanted_back.discard(key)
            if outcome.reason is Reason.RETURNED and verdict is not None:
                outcome = verdict.outcome_of(submission)
            if submission.options.stage_out and outcome.reason is Reason.FINISHED:
                if verdict is None:
                    phases.computed = Slot(submission, outcome)
                    continue
                outcome = verdict.outcome_of(submission, outcome.duration_s)
            self._end(outcome)
            if outcome.reason is Reason.FINISHED:
                phases.made = key
            else:
                phases.made = None
                self._share_fate(outcome, from_compute=True)
        phases.head_since_s = self.now

    @handles(work.StagedIn)
    def _staged_in(self, event: work.StagedIn) -> None:
        slot = self._staging_slot(event.key)
        if self._phases.incoming.get(event.key) is not slot or slot.staged:
            raise IllegalEvent(f"attempt {event.key} is not being staged in")
        slot.staged = True
        if event.submission is not None:
            slot.submission = event.submission

    @handles(work.StagedOut)
    def _staged_out(self, event: work.StagedOut) -> None:
        slot = self._staging_slot(event.key)
        if slot is not self._phases.outgoing:
            raise IllegalEvent(f"attempt {event.key} is not being staged out")
        if slot.verdict is None:
            outcome = event.outcome or slot.outcome
            assert outcome is not None
            self._phases.outgoing = None
            self._end(outcome)

    @handles(work.StagingFailed)
    def _staging_failed(self, event: work.StagingFailed) -> None:
        slot = self._staging_slot(event.key)
        if slot.staged:
            raise IllegalEvent(f"attempt {event.key} is not being staged")
        if slot.verdict is None:
            self._leave_slot(slot, Verdict(event.reason, event.error))

    @handles(work.Aborted)
    def _aborted(self, event: work.Aborted) -> None:
        slot = self._staging_slot(event.key)
        if slot.verdict is None:
            raise IllegalEvent(f"nobody asked to abort attempt {event.key}")
        self._leave_slot(slot, slot.verdict)

    def _staging_slot(self, key: AttemptKey) -> Slot:
        slot = self._phases.slot_of(key)
        if slot is None or slot is self._phases.computed:
            raise IllegalEvent(f"attempt {key} is not being staged at {self.resource.resource_id}")
        return slot

    # Attempts are stopped

    @handles(Cancel)
    def _cancel(self, event: Cancel) -> None:
        phases = self._phases
        keys = {key for key in event.attempts if key in phases.present}
        self._end_all(phases.drop_queued(keys.__contains__), CANCELLED)
        for slot in list(phases.slots()):
            if slot.key in keys:
                self._stop_slot(slot, CANCELLED)
        handed = [key for key in map(key_of, phases.handed) if key in keys]
        for key in handed:
            self._condemn(key, CANCELLED)
        if handed and key_of(phases.handed[0]) not in self._verdicts:
            self._retract()

    @handles(TakeBack)
    def _take_back(self, event: TakeBack) -> None:
        phases = self._phases
        keys = {key for key in event.attempts if key in phases.present}
        self._end_all(phases.drop_queued(keys.__contains__), TAKEN_BACK)
        for slot in list(phases.slots()):
            if slot.key in keys and slot.verdict is None and not phases.has_begun(slot):
                self._stop_slot(slot, TAKEN_BACK)
        handed = keys & {key_of(submission) for submission in phases.handed}
        if handed:
            self._wanted_back |= handed
            self._retract()

    @handles(work.EndWork)
    def _end_work(self, event: work.EndWork) -> None:
        self.closed = self.closed or event.close
        error = TaskError(event.reason.value, event.detail)
        begun = Verdict(event.reason, error)
        queued = begun if event.reason is Reason.CANCELLED else Verdict(Reason.RETURNED, error)
        phases = self._phases
        head = phases.head
        for slot in list(phases.slots()):
            self._stop_slot(slot, queued if slot.key in phases.incoming else begun)
        self._end_all(phases.drop_queued(lambda _: True), queued)
        for submission in phases.handed:
            self._condemn(key_of(submission), begun if submission is head else queued)

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        due_s = self.deadline()
        head = self._phases.head
        if due_s is not None and head is not None and due_s <= self.now:
            error = TaskError("timeout", f"it ran longer than its timeout of {head.options.timeout_s:g} s")
            self._condemn(key_of(head), Verdict(Reason.FAILED, error))

    def _condemn(self, key: AttemptKey, verdict: Verdict) -> None:
        self._verdicts[key] = verdict.after(self._verdicts.get(key))

    def _stop_slot(self, slot: Slot, verdict: Verdict) -> None:
        if slot is self._phases.computed:
            self._leave_slot(slot, verdict)
            return
        if slot.verdict is None:
            self.actions.append(work.Abort(self.resource.resource_id, slot.key))
        slot.verdict = verdict.after(slot.verdict)

    def _retract(self) -> None:
        if not (self._retracting or self._killing):
            self._retracting = True
            self.actions.append(work.Retract(self.resource.resource_id, self.job))

    # The compute process answers

    @handles(work.ComputeOpening, work.ComputeReady)
    def _compute_opening(self, event: work.ComputeOpening | work.ComputeReady) -> None:
        self._opening = type(event) is work.ComputeOpening
        if not self._opening:
            self._phases.head_since_s = self.now

    @handles(work.Retracted)
    def _retracted(self, event: work.Retracted) -> None:
        back = self._phases.take_back(event.keys, self.now) if self._retracting else None
        if back is None:
            raise IllegalEvent(f"{self.resource.resource_id} did not ask to take back {event.keys}")
        self._retracting = False
        self._queue_again(back)
        handed = self._phases.handed
        self._wanted_back &= {key_of(submission) for submission in handed} if self._killing else set()
        loss, self._loss = self._loss, None
        if loss is not None:
            self._compute_lost(loss)

    @handles(work.ComputeLost)
    def _compute_lost(self, event: work.ComputeLost) -> None:
        """The loss counts for the one in compute alone; what is being taken back was not there."""
        handed = self._phases.handed
        if self._retracting:
            self._loss = event
        elif handed and not self._killing:
            record = WorkerChanged(self.now, self.resource.resource_id, "lost", self.job, detail=event.detail)
            self.actions.extend((record, work.ForgetCompute(self.resource.resource_id, self.job)))
            begun = self._phases.may_begin(handed[0])
            self._condemn(key_of(handed[0]), event.verdict if begun else NOT_MADE)
            self._empty_compute(event.printed)

    @handles(work.ComputeKilled)
    def _compute_killed(self, event: work.ComputeKilled) -> None:
        if not self._killing:
            raise IllegalEvent(f"nobody asked to kill the compute process of {self.resource.resource_id}")
        self._killing = False
        self._empty_compute(event.printed)

    def _empty_compute(self, printed: tuple[bytes, bytes]) -> None:
        """No compute process has anything any more: report what has a verdict, run the rest again.

        ``printed``: by the one in compute.
        """
        phases = self._phases
        self._opening = False
        phases.made, phases.is_cut = None, True
        if not phases.handed:
            return
        handed = list(phases.handed)
        phases.handed.clear()
        head = handed[0]
        verdict = self._verdicts.pop(key_of(head), None)
        if verdict is not None:
            outcome = verdict.outcome_of(handed.pop(0), self.now - phases.head_since_s, printed)
            self._end(outcome)
            self._share_fate(outcome, from_compute=True)
        self._queue_again(handed)
        self._wanted_back.clear()

    def _queue_again(self, submissions: list[Submission]) -> None:
        """Report those that have a verdict or are wanted back; the others are the next to be handed over."""
        again = []
        for submission in submissions:
            key = key_of(submission)
            wanted_back = key in self._wanted_back
            self._wanted_back.discard(key)
            verdict = self._verdicts.pop(key, None) or (TAKEN_BACK if wanted_back else None)
            if verdict is None:
                again.append(submission)
            else:
                self._end_all((submission,), verdict)
        self._phases.again.extendleft(reversed(again))

    def _end(self, outcome: Outcome) -> None:
        phases = self._phases
        del phases.present[outcome.task_id, outcome.attempt]
        if outcome.reason is not Reason.FINISHED:
            phases.is_cut = True
        self._ended.append(outcome)

    def _end_all(self, submissions: Iterable[Submission], verdict: Verdict) -> None:
        """Report attempts that are in no phase."""
        for submission in submissions:
            self._end(verdict.outcome_of(submission))

    def _leave_slot(self, slot: Slot, verdict: Verdict) -> None:
        had_begun = self._phases.has_begun(slot)
        self._phases.vacate(slot)
        outcome = verdict.outcome_of(slot.submission)
        self._end(outcome)
        if had_begun:
            self._share_fate(outcome, from_compute=False)

    def _share_fate(self, outcome: Outcome, *, from_compute: bool) -> None:
        """One in the phases did not finish: the others in the phases go back (WRK-3), those queued do not."""
        if not self._fate or outcome.reason is Reason.RETURNED:
            return
        message = f"it was overlapped with task {outcome.task_id}, which was {outcome.reason.value}"
        verdict = Verdict(Reason.RETURNED, TaskError(FATE, message))
        for slot in list(self._phases.slots()):
            if self._phases.has_begun(slot):
                self._stop_slot(slot, verdict)
        head = self._phases.head
        if head is not None and not from_compute:
            self._condemn(key_of(head), verdict)
