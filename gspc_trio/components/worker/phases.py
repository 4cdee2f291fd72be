"""The phases of a worker: which attempt is where, and which may go on to the next phase (WRK-2).

``waiting -> stage-in -> compute -> stage-out``, in order, at most one attempt in each phase. What needs no
staging goes straight to compute, and many such attempts are handed over ahead, so that the compute process
never waits for the next; of those only the first is in compute, the others count as queued. An attempt that
needs staging is handed over alone; one that may not run again, or that holds several resources, is alone in
the phases. Stage-in waits while the data that those in the phases have fetched leaves it no room.

A job may have the data of several attempts fetched at a time (``StageLimits.attempts_max``). Then of those
that have their data the one of the lowest rank computes next, and may overtake others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.worker.events import AttemptKey, Compute, StageIn, StageOut
from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.verdict import Verdict
from gspc_trio.core.ids import Count, JobId, ResourceId
from gspc_trio.core.staging import DEFAULT_LIMITS
from gspc_trio.core.task import Outcome, TaskOptions

PhaseAction: TypeAlias = StageIn | Compute | StageOut
"""An attempt enters a phase."""


class AttemptPhase(StrEnum):
    """Where an attempt is at its worker."""

    WAITING = "waiting"
    """Not begun; also one that was handed to the compute process ahead, behind the one in compute."""
    STAGE_IN = "stage_in"
    """Its data is fetched, or is there and compute is not free for it yet."""
    COMPUTE = "compute"
    """It is the one that the compute process runs, or has run while stage-out was not free."""
    STAGE_OUT = "stage_out"
    """Its results are stored."""
    ENDED = "ended"
    """It was reported, one way or the other."""


TRANSITIONS: dict[AttemptPhase, frozenset[AttemptPhase]] = {
    AttemptPhase.WAITING: frozenset({AttemptPhase.STAGE_IN, AttemptPhase.COMPUTE, AttemptPhase.ENDED}),
    AttemptPhase.STAGE_IN: frozenset({AttemptPhase.COMPUTE, AttemptPhase.ENDED}),
    AttemptPhase.COMPUTE: frozenset({AttemptPhase.WAITING, AttemptPhase.STAGE_OUT, AttemptPhase.ENDED}),
    AttemptPhase.STAGE_OUT: frozenset({AttemptPhase.ENDED}),
    AttemptPhase.ENDED: frozenset(),
}
"""Where an attempt may go from where it is; what compute turns out not to have read waits again."""


class Slot(Struct, eq=False):
    """An attempt in stage-in or stage-out; ``verdict`` is set while its staging is being aborted."""

    submission: Submission
    outcome: Outcome | None = None
    staged: bool = False
    verdict: Verdict | None = None

    @property
    def key(self) -> AttemptKey:
        """Which attempt it is."""
        return key_of(self.submission)


def key_of(submission: Submission) -> AttemptKey:
    """Return which attempt a submission is."""
    return (submission.task_id, submission.attempt)


class Phases:
    """The attempts of one job on one worker.

    Attributes:
        alone: whether each attempt holds several resources, and so is never overlapped.
        present: all attempts that have not ended.
        again: were with a compute process that is gone, or taken back; they come before all that waits.
        waiting: not begun, in order.
        incoming: in stage-in, or staged and waiting for compute, in the order in which they entered.
        handed: given to the compute process, the first of them in compute.
        computed: its compute has ended, stage-out is still taken by the one before.
        outgoing: in stage-out.
        made: the attempt that the compute process has finished last; None: it failed, or the process is new.
        made_for: the job of that process.
        is_cut: an attempt has not finished: others may have been sent ahead behind it.
        head_since_s: when the first of ``handed`` became the first.
        inputs_bytes_max: how much data those in the phases may have fetched, unless there is but one.
        stage_ins_max: how many attempts may be in stage-in; if more than one, they may overtake each other.
    """

    def __init__(self, resource_id: ResourceId) -> None:
        self.resource_id = resource_id
        self.job: JobId = ""
        self.alone = False
        self.present: dict[AttemptKey, Submission] = {}
        self.again: deque[Submission] = deque()
        self.waiting: deque[Submission] = deque()
        self.incoming: dict[AttemptKey, Slot] = {}
        self.handed: deque[Submission] = deque()
        self.computed: Slot | None = None
        self.outgoing: Slot | None = None
        self.made: AttemptKey | None = None
        self.made_for: JobId = ""
        self.is_cut: bool = False
        self.head_since_s: float = 0.0
        self.inputs_bytes_max: Count = DEFAULT_LIMITS.inputs_bytes_max
        self.stage_ins_max: Count = 1

    @property
    def head(self) -> Submission | None:
        """The attempt in compute."""
        return self.handed[0] if self.handed else None

    @property
    def overtakes(self) -> bool:
        """Whether attempts may overtake each other in stage-in, which is not yet a beginning then."""
        return self.stage_ins_max > 1

    def has_begun(self, slot: Slot) -> bool:
        """Whether an attempt in a slot has begun."""
        return not (self.overtakes and slot.key in self.incoming)

    def slots(self) -> Iterator[Slot]:
        """Iterate over what is staged, or between compute and stage-out."""
        yield from self.incoming.values()
        for slot in (self.computed, self.outgoing):
            if slot is not None:
                yield slot

    def slot_of(self, key: AttemptKey) -> Slot | None:
        """Return the slot that the attempt is in."""
        return next((slot for slot in self.slots() if slot.key == key), None)

    def vacate(self, slot: Slot) -> None:
        """Empty the phase that ``slot`` is in."""
        if self.incoming.get(slot.key) is slot:
            del self.incoming[slot.key]
        elif slot is self.outgoing:
            self.outgoing = None
        else:
            assert slot is self.computed
            self.computed = None

    def status(self, key: AttemptKey) -> AttemptPhase | None:
        """Return where it is; None: not here, or no longer."""
        if key not in self.present:
            return None
        if key in self.incoming:
            return AttemptPhase.STAGE_IN
        slots = {AttemptPhase.COMPUTE: self.computed, AttemptPhase.STAGE_OUT: self.outgoing}
        for phase, slot in slots.items():
            if slot is not None and slot.key == key:
                return phase
        is_head = bool(self.handed) and key_of(self.handed[0]) == key
        return AttemptPhase.COMPUTE if is_head else AttemptPhase.WAITING

    def plain(self, submission: Submission) -> bool:
        """Whether the attempt may be handed over ahead, together with others."""
        options = submission.options
        return options.may_rerun and not (options.stage_in or options.stage_out or self.alone)

    def exclusive(self, submission: Submission) -> bool:
        """Whether the attempt must be alone in the phases."""
        return self.alone or not submission.options.may_rerun

    def drop_queued(self, unwanted: Callable[[AttemptKey], bool]) -> list[Submission]:
        """Remove the unwanted of those not begun, and return them in order."""
        dropped: list[Submission] = []
        for queue in (self.again, self.waiting):
            if any(unwanted(key_of(submission)) for submission in queue):
                kept: list[Submission] = []
                for submission in queue:
                    (dropped if unwanted(key_of(submission)) else kept).append(submission)
                queue.clear()
                queue.extend(kept)
        return dropped

    def drop_unmade(self) -> list[Submission]:
        """Remove those not begun whose argument is not made here any more, and return them in order."""
        dropped: list[Submission] = []
        gone = {
            key_of(one) for queue in (self.again, self.waiting) for one in queue if not self._is_made(one)
        }
        while gone:
            dropped += self.drop_queued(gone.__contains__)
            behind = (one for queue in (self.again, self.waiting) for one in queue)
            gone = {key_of(one) for one in behind if one.after in gone}
        return dropped

    def may_begin(self, submission: Submission) -> bool:
        """Whether an attempt that is in compute has its argument: else it is only on its way back."""
        return submission.after is None or submission.after == self.made

    def _is_made(self, submission: Submission) -> bool:
        """Whether the argument of an attempt, if it takes one from here, is there or on its way."""
        after = submission.after
        return after is None or after == self.made or after in self.present

    def take_back(self, keys: tuple[AttemptKey, ...], now: float) -> list[Submission] | None:
        """Remove these from what was handed over, and return them; None: they are not there in this order."""
        taken = set(keys)
        back = [submission for submission in self.handed if key_of(submission) in taken]
        if tuple(map(key_of, back)) != keys:
            return None
        if back:
            if back[0] is self.head:
                self.head_since_s = now
            self.handed = deque(each for each in self.handed if key_of(each) not in taken)
        return back

    def advance(self, may_hand: bool, blocked: bool, now: float) -> list[PhaseAction]:
        """Let every attempt enter the phase that is free for it.

        Args:
            may_hand: whether the compute process takes more.
            blocked: whether a compute process is still being killed, beside which nothing may be alone.
            now: the time.

        Returns:
            StageOut, Compute and StageIn actions.
        """
        actions: list[PhaseAction] = []
        if self.computed is not None and self.outgoing is None:
            slot, self.computed = self.computed, None
            assert slot.outcome is not None
            self.outgoing = slot
            actions.append(StageOut(self.resource_id, self.job, slot.submission, slot.outcome))
        may_hand = may_hand and self.computed is None
        if self.incoming and may_hand and not (self.handed or self.again):
            first = self._next_staged()
            if first is not None:
                del self.incoming[first.key]
                actions.append(self._hand([first.submission], now))
        if self.waiting or self.again:
            actions += self._enter(may_hand, blocked, now)
        return actions

    def _next_staged(self) -> Slot | None:
        """Return the attempt that computes next of those that have their data, the first of equal ranks."""
        staged = [it for it in self.incoming.values() if it.staged and it.verdict is None]
        return min(staged, key=lambda it: it.submission.rank, default=None)

    def _enter(self, may_hand: bool, blocked: bool, now: float) -> list[PhaseAction]:
        """Let those that wait enter in order, until one cannot."""
        actions: list[PhaseAction] = []
        place = 0  # of the Compute among them
        run: list[Submission] = []
        if may_hand and self.again:
            run.extend(self.again)
            self.again.clear()
        if self.incoming and (not self.overtakes or self._next_staged() is not None):
            may_hand = False
        beside_plain = may_hand and self._plain_may_enter()
        waiting = self.waiting
        options: TaskOptions | None = None
        while waiting:
            submission = waiting[0]
            if submission.options is options or self.plain(submission):
                if not beside_plain:
                    break
                options = submission.options  # what is plain is so by them
                run.append(waiting.popleft())
                continue
            others = blocked or bool(run or self.handed) or any(True for _ in self.slots())
            if others and (self.exclusive(submission) or self._exclusive_in_phases()):
                break
            if submission.options.stage_in:
                if len(self.incoming) < self.stage_ins_max and self._has_room_for(submission):
                    waiting.popleft()
                    self.incoming[key_of(submission)] = Slot(submission)
                    actions.append(StageIn(self.resource_id, self.job, submission))
                    place += not run
                    if self.overtakes and not self.exclusive(submission):
                        continue
            elif may_hand and not (run or self.handed):
                run.append(waiting.popleft())
            break
        if run:
            actions.insert(place, self._hand(run, now))
        return actions

    def _plain_may_enter(self) -> bool:
        """Whether what is handed over, and what is being staged, can have a plain attempt beside it."""
        if self.incoming and any(self.exclusive(slot.submission) for slot in self.incoming.values()):
            return False
        if self.outgoing is not None and self.exclusive(self.outgoing.submission):
            return False
        return not self.handed or self.plain(self.handed[0])

    def _has_room_for(self, submission: Submission) -> bool:
        """Whether the data that it fetches may come beside that of those in the phases."""
        taken = self._input_bytes()
        return not taken or taken + submission.input_bytes <= self.inputs_bytes_max

    def _input_bytes(self) -> int:
        staged = sum(slot.submission.input_bytes for slot in self.slots())
        return staged + (self.handed[0].input_bytes if self.handed else 0)

    def _exclusive_in_phases(self) -> bool:
        if any(self.exclusive(slot.submission) for slot in self.slots()):
            return True
        return bool(self.handed) and self.exclusive(self.handed[0])

    def _hand(self, run: list[Submission], now: float) -> Compute:
        if not self.handed:
            self.head_since_s = now
        self.handed.extend(run)
        return Compute(self.resource_id, self.job, tuple(run))

    def check(self) -> None:
        """Assert every invariant."""
        slots = [slot.submission for slot in self.slots()]
        places = [key_of(s) for s in (*self.again, *self.waiting, *self.handed, *slots)]
        assert len(places) == len(set(places)), "an attempt is in two places"
        assert set(places) == set(self.present), "an attempt is nowhere, or one that has ended is somewhere"
        assert len(self.incoming) <= self.stage_ins_max, "more attempts in stage-in than there may be"
        fetched = [one.input_bytes for one in (*slots, *self.handed) if one.input_bytes]
        assert len(fetched) < 2 or sum(fetched) <= self.inputs_bytes_max, "more data than there may be"
        assert not (self.computed and self.handed), "compute goes on while a result waits for stage-out"
        assert not self.computed or self.outgoing, "a result waits although stage-out is free"
        assert all(self.plain(submission) for submission in self.again), "to be run again, but may not"
        queued = (*self.again, *self.waiting)
        assert self.is_cut or all(map(self._is_made, queued)), "waits for an argument that is not made here"
        if any(not self.plain(submission) for submission in self.handed):
            assert len(self.handed) == 1, "handed over ahead beside one that must be alone"
        if self._exclusive_in_phases():
            assert len(slots) + len(self.handed) == 1, "overlapped with one that must be alone"
