"""Checker of a worker's attempts: from what the worker is told, and what it says and orders.

Attempts begin in the order in which they came; where they may overtake each other in stage-in, by rank of
those that have their data. What is to be stopped is being stopped at any time, what can go on goes on, and
each attempt is reported once, in a way that fits what it has been through.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from attrs import define, field

from gspc_trio.components.rif.events import HostAction
from gspc_trio.components.worker import events as work
from gspc_trio.components.worker.events import AttemptKey, WorkerAction, WorkerEvent
from gspc_trio.components.worker.messages import Cancel, Submission, Submit, TakeBack
from gspc_trio.components.worker.verdict import FATE
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.staging import StageLimits
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.testing.checkers.base import Broken

SHORT_S = 1e-6


class At(Enum):
    """Where an attempt is."""

    WAITING = "waiting"
    FETCHING = "fetching"
    READY = "ready for compute"
    HANDED = "handed over"
    COMPUTED = "computed"
    STORING = "storing"
    STORED = "stored"


SLOTS = frozenset({At.FETCHING, At.READY, At.COMPUTED, At.STORING, At.STORED})


@define(eq=False)
class _Attempt:
    """One that was given to a worker, and has not been reported.

    ``unwanted`` holds why it is to end: ``cancelled``, ``taken back``, ``fate``; ``sentence`` is how it is to
    be reported then: the first thing said that is no mere return stands. ``computed`` is how its compute has
    ended, ``stored`` what stage-out has made of that, ``failed`` how its staging has ended.
    """

    submission: Submission
    number: int
    at: At = At.WAITING
    was_handed: bool = False
    unwanted: set[str] = field(factory=set)
    aborting: bool = False
    sentence: Reason | None = None
    computed: Outcome | None = None
    stored: Outcome | None = None
    failed: Reason | None = None


class Attempts:
    """Those of one worker.

    Args:
        name: of its resource.
    """

    def __init__(self, name: ResourceId) -> None:
        self.name = name
        self.job: JobId = ""
        self.grant_id: GrantId = NO_GRANT
        self.ending: set[Reason] = set()
        self._has_fate = True
        self._inputs_bytes_max = 0
        self._stage_ins_max = 1
        self._is_alone = False
        self._all: dict[AttemptKey, _Attempt] = {}
        self._handed: list[AttemptKey] = []
        self._number = 0
        self._killing = self._retracting = False
        self._ran_s = self._head_since_s = 0.0
        self._is_opening = False
        self._loss: work.ComputeLost | None = None
        self._head_before: AttemptKey | None = None
        self._loss_before: work.ComputeLost | None = None
        self._told: set[AttemptKey] = set()
        self._now = 0.0

    @property
    def busy(self) -> bool:
        """Whether anything is left of its work."""
        return bool(self._all) or self._killing or self._retracting

    def __len__(self) -> int:
        return len(self._all)

    # What it is told

    def assign(self, submit: Submit, has_fate: bool, stage: StageLimits) -> None:
        """It takes these."""
        if not self.busy:
            self.job, self.grant_id = submit.job, submit.grant_id
            self.ending.clear()
            self._loss = None
            self._has_fate, self._inputs_bytes_max = has_fate, stage.inputs_bytes_max
            self._stage_ins_max = max(1, stage.attempts_max)
            self._is_alone = len(submit.resources) > 1
        for submission in submit.submissions:
            self._number += 1
            self._all[submission.task_id, submission.attempt] = _Attempt(submission, self._number)

    def end(self, reason: Reason) -> None:
        """It is to end all that it has."""
        self.ending.add(reason)
        head = self._handed[0] if self._handed else None
        for key, attempt in self._all.items():
            begun = key == head or attempt.at in (At.COMPUTED, At.STORING, At.STORED)
            if begun or reason is Reason.CANCELLED:
                attempt.sentence = attempt.sentence or reason

    def begin(self, now: float) -> None:
        """An event begins."""
        self._now = now
        self._head_before = self._handed[0] if self._handed else None
        self._loss_before = self._loss
        self._told.clear()

    def told(self, event: WorkerEvent) -> None:
        """It takes an event of its own."""
        if type(event) is work.Computed:
            for outcome in event.outcomes:
                self._computed(outcome)
        elif type(event) is Cancel or type(event) is TakeBack:
            for key in event.attempts:
                attempt = self._all.get(key)
                if attempt is not None and (type(event) is Cancel or self._may_go_back(attempt)):
                    attempt.unwanted.add("cancelled" if type(event) is Cancel else "taken back")
                    self._told.add(key)
                    if type(event) is Cancel:
                        attempt.sentence = attempt.sentence or Reason.CANCELLED
        elif type(event) is work.StagedIn:
            self._move(event.key, At.READY)
        elif type(event) is work.StagedOut:
            self._move(event.key, At.STORED)
            if event.key in self._all:
                self._all[event.key].stored = event.outcome
        elif type(event) is work.StagingFailed:
            if event.key in self._all:
                self._all[event.key].failed = event.reason
        elif type(event) is work.Aborted:
            if event.key in self._all:
                self._all[event.key].aborting = False
        elif type(event) is work.ComputeOpening:
            self._is_opening = True
        elif type(event) is work.ComputeReady:
            self._is_opening, self._head_since_s = False, self._now
        elif type(event) is work.ComputeLost:
            self._loss = self._loss_before = event
        elif type(event) is work.ComputeKilled:
            self._killing, self._loss = False, None
            self._wait_again(list(self._handed))
        elif type(event) is work.Retracted:
            self._retracting = False
            self._wait_again(event.keys)
            for key in self._handed if not self._killing else ():
                self._all[key].unwanted.discard("taken back")  # it was read already

    def _may_go_back(self, attempt: _Attempt) -> bool:
        """Whether it has not begun: where they may overtake each other stage-in is no beginning."""
        return attempt.at in (At.WAITING, At.HANDED) or self._is_overtaken(attempt)

    def _is_overtaken(self, attempt: _Attempt) -> bool:
        return self._stage_ins_max > 1 and attempt.at in (At.FETCHING, At.READY)

    def _move(self, key: AttemptKey, to: At) -> None:
        if key in self._all:
            self._all[key].at = to

    def _computed(self, outcome: Outcome) -> None:
        key = (outcome.task_id, outcome.attempt)
        attempt = self._all.get(key)
        if attempt is None or self._handed[:1] != [key]:
            raise self._broken(key, "has computed, and was not the next")
        del self._handed[0]
        self._head_before, self._head_since_s = key, self._now
        attempt.at, attempt.computed = At.COMPUTED, outcome
        attempt.unwanted.discard("taken back")

    def _wait_again(self, keys: Iterable[AttemptKey]) -> None:
        """These are with no compute process any more."""
        for key in keys:
            if self._handed[:1] == [key]:
                self._head_since_s = self._now
            self._handed.remove(key)
            self._all[key].at = At.WAITING
        if not self._handed:
            self._is_opening = False

    # What it says and orders

    def acts(self, action: HostAction | WorkerAction) -> None:
        """It does something."""
        if type(action) is work.Compute:
            self._hand(action.submissions)
        elif type(action) is work.StageIn:
            self._fetch(action.submission)
        elif type(action) is work.StageOut:
            key = (action.submission.task_id, action.submission.attempt)
            self._expect(key, At.COMPUTED, "stores")
            self._all[key].at = At.STORING
        elif type(action) is work.Abort:
            if action.key in self._all:
                self._all[action.key].aborting = True
        elif type(action) is work.Kill:
            self._killing, self._ran_s = True, self._now - self._head_since_s
        elif type(action) is work.Retract:
            self._retracting = True
        elif type(action) is work.ForgetCompute:
            self._loss = None
            self._wait_again(list(self._handed))

    def _expect(self, key: AttemptKey, at: At, what: str) -> None:
        attempt = self._all.get(key)
        if attempt is None or attempt.at is not at:
            raise self._broken(key, f"{what}, and is {attempt and attempt.at.value}")
        if attempt.unwanted or self.ending:
            raise self._broken(key, f"{what}, and is to end: {[*attempt.unwanted, *self.ending]}")

    def _fetch(self, submission: Submission) -> None:
        key = (submission.task_id, submission.attempt)
        self._expect(key, At.WAITING, "fetches")
        attempt = self._all[key]
        for other in self._all.values():
            if other.number < attempt.number and other.at is At.WAITING and not other.was_handed:
                raise self._broken(key, f"overtakes task {other.submission.task_id}")
        self._begins(attempt)
        attempt.at = At.FETCHING

    def _hand(self, submissions: tuple[Submission, ...]) -> None:
        if self._killing or self._retracting or self._is_blocked():
            raise Broken(f"{self.name} computes, and what it had before is in the way", self.name)
        if not self._handed:
            self._head_since_s = self._now
        for submission in submissions:
            key = (submission.task_id, submission.attempt)
            self._expect(key, At.READY if submission.options.stage_in else At.WAITING, "computes")
            attempt = self._all[key]
            attempt.at, attempt.was_handed = At.HANDED, True
            self._handed.append(key)
            self._begins(attempt)
        first = self._all[submissions[0].task_id, submissions[0].attempt]
        place, staged = (first.submission.rank, first.number), first.submission.options.stage_in
        for attempt in self._all.values():
            if self._is_overtaken(attempt):
                could = staged and attempt.at is At.READY and not attempt.aborting
                wrong = could and (attempt.submission.rank, attempt.number) < place
            else:
                wrong = attempt.number < first.number and attempt.at in (At.WAITING, At.FETCHING, At.READY)
            if wrong:
                raise self._broken(
                    (submissions[0].task_id, submissions[0].attempt),
                    f"overtakes task {attempt.submission.task_id}",
                )

    def _begins(self, attempt: _Attempt) -> None:
        if self._killing and self._is_exclusive(attempt):
            raise self._broken(_key(attempt), "must be alone, and a process beside it has not ended")

    def reports(self, outcome: Outcome) -> None:
        """It says how an attempt has ended."""
        key = (outcome.task_id, outcome.attempt)
        attempt = self._all.get(key)
        if attempt is None:
            raise self._broken(key, f"is reported {outcome.reason}, and was not there any more")
        was_head = key == self._head_before and attempt.at in (At.WAITING, At.HANDED, At.COMPUTED)
        self._may_be(attempt, outcome, was_head)
        in_phases = was_head or (attempt.at in SLOTS and not self._is_overtaken(attempt))
        del self._all[key]
        if key in self._handed:
            self._handed.remove(key)
        if self._has_fate and in_phases and outcome.reason not in (Reason.FINISHED, Reason.RETURNED):
            from_compute = attempt.at in (At.WAITING, At.HANDED, At.COMPUTED)
            head = [] if from_compute else self._handed[:1]
            for other_key, other in self._all.items():
                if (other.at in SLOTS and not self._is_overtaken(other)) or other_key in head:
                    other.unwanted.add("fate")

    def _may_be(self, attempt: _Attempt, outcome: Outcome, was_head: bool) -> None:
        reason, error = outcome.reason, outcome.error
        kind = error.kind if error is not None else ""
        computed = attempt.computed.reason if attempt.computed is not None else None
        begun = was_head or attempt.at in (At.COMPUTED, At.STORING, At.STORED)
        loss = self._loss_before
        by_itself = reason in (Reason.FINISHED, Reason.FAILED)
        if attempt.sentence not in (None, reason) and not by_itself:
            why = f"is to be {attempt.sentence}"
        elif attempt.aborting:
            why = "what stages it is being stopped, and has not ended"
        elif reason is Reason.FINISHED:
            done = attempt.at is At.STORED or (
                attempt.at is At.COMPUTED and not attempt.submission.options.stage_out
            )
            why = "" if computed is Reason.FINISHED and done else f"it is {attempt.at.value} only"
            made = attempt.stored or attempt.computed
            if not why and made is not None and outcome.values != made.values:
                why = "it has made something else"
        elif reason is Reason.FAILED and kind == "timeout":
            timeout_s = attempt.submission.options.timeout_s
            fits = timeout_s is not None and was_head and self._ran_s >= timeout_s - SHORT_S
            why = "" if fits else f"it had {self._ran_s:g} of {timeout_s} s"
        elif reason is Reason.FAILED:
            fits = computed is Reason.FAILED or attempt.failed is Reason.FAILED or attempt.at is At.STORED
            why = "" if fits else "nothing of it has failed"
        elif reason is Reason.CANCELLED:
            fits = "cancelled" in attempt.unwanted or Reason.CANCELLED in self.ending
            why = "" if fits else "nobody has cancelled it"
        elif reason is Reason.LOST:
            gone = Reason.LOST in self.ending or (was_head and loss is not None and loss.begun)
            why = "" if begun and gone else f"it is {attempt.at.value}, and begun is {begun}"
        elif kind == FATE:
            why = "" if "fate" in attempt.unwanted else "there is none that it shares"
        else:
            no_fault = computed is Reason.RETURNED or attempt.failed is Reason.RETURNED
            no_fault = no_fault or attempt.at is At.STORED or (loss is not None and not loss.begun)
            taken_back = "taken back" in attempt.unwanted and attempt.at is At.WAITING
            why = "" if not begun or no_fault or taken_back else "it had begun"
        if why:
            raise self._broken(_key(attempt), f"is reported {reason} ({kind}), but {why}")

    # What holds after each event

    def check(self) -> None:
        """See that what is to end is being ended, and that the rest goes on."""
        if not self._handed:
            self._loss = None  # it had nothing
        if not self._all:
            if self._handed:
                raise Broken(f"{self.name} computes what was reported", self.name)
            return
        counts = dict.fromkeys(At, 0)
        head = self._handed[0] if self._handed else None
        stopping = self._killing or self._retracting
        under_way = stopping or (bool(self._handed) and self._loss is None)
        for key, attempt in self._all.items():
            counts[attempt.at] += 1
            under_way = under_way or attempt.aborting or attempt.at in (At.FETCHING, At.STORING)
            if attempt.at is At.STORED and not attempt.aborting:
                raise self._broken(key, "is stored, and not reported")
            if attempt.unwanted or self.ending:
                self._is_being_ended(key, attempt, key == head)
            elif attempt.at is At.WAITING and attempt.was_handed and not (stopping or self._is_blocked()):
                raise self._broken(key, "is to run again, and does not")
        if not under_way:
            raise Broken(f"{self.name} has {len(self._all)} attempts, and does nothing", self.name)
        if self._loss is not None and self._handed and not stopping:
            raise Broken(f"{self.name} goes on with a compute process that is gone", self.name)
        storing = counts[At.STORING] + counts[At.STORED]
        if counts[At.COMPUTED] and not storing:
            raise Broken(f"{self.name} keeps a result that could be stored", self.name)
        staged_in = counts[At.FETCHING] + counts[At.READY]
        if staged_in > self._stage_ins_max or max(storing, counts[At.COMPUTED]) > 1:
            raise Broken(f"{self.name} has two attempts in one phase", self.name)
        if counts[At.READY] and not (self._handed or stopping or counts[At.COMPUTED]):
            for key, attempt in self._all.items():
                if attempt.at is At.READY and not attempt.aborting:
                    raise self._broken(key, "could compute, and does not")
        self._check_company(head)

    def _is_being_ended(self, key: AttemptKey, attempt: _Attempt, is_head: bool) -> None:
        if attempt.at in SLOTS:
            is_ending = attempt.aborting
        elif attempt.at is At.HANDED:
            must_now = is_head or key in self._told
            mere_wish = attempt.unwanted == {"taken back"} and not self.ending and key not in self._told
            is_ending = mere_wish or not must_now or self._killing or self._retracting
        else:
            is_ending = False
        if not is_ending:
            why = [*attempt.unwanted, *self.ending]
            raise self._broken(key, f"is to end ({', '.join(why)}), and stays {attempt.at.value}")

    def _check_company(self, head: AttemptKey | None) -> None:
        """Nothing is beside what must be alone, and what was fetched has room."""
        if len(self._handed) > 1:
            for key in self._handed:
                options = self._all[key].submission.options
                staged = options.stage_in or options.stage_out
                if staged or self._is_exclusive(self._all[key]):
                    raise self._broken(key, "was handed over beside others")
        present = [one for key, one in self._all.items() if one.at in SLOTS or key == head]
        if len(present) > 1:
            for attempt in present:
                if self._is_exclusive(attempt):
                    raise self._broken(_key(attempt), "must be alone, and is not")
            fetched = [one.submission.input_bytes for one in present if one.submission.input_bytes]
            if len(fetched) > 1 and sum(fetched) > self._inputs_bytes_max:
                raise Broken(f"{self.name} has fetched {sum(fetched)} bytes, more than may be", self.name)

    def _is_blocked(self) -> bool:
        """Whether a result is in the way of what could compute."""
        return any(one.at is At.COMPUTED for one in self._all.values())

    def _is_exclusive(self, attempt: _Attempt) -> bool:
        return self._is_alone or not attempt.submission.options.may_rerun

    def _broken(self, key: AttemptKey, what: str) -> Broken:
        task = f"task {key[0]} of {self.job}"
        return Broken(f"{task}, attempt {key[1]}, at {self.name} {what}", task, self.name)


def _key(attempt: _Attempt) -> AttemptKey:
    return (attempt.submission.task_id, attempt.submission.attempt)
