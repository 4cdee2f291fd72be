"""Lost data of a job is made again: the tasks that made it run once more, under ids of their own (ASP-5).

Values that were given to the job are put again, as far as they are remembered.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

import msgpack
import trio
from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Engine, EngineWrapper
from gspc_trio.components.job.lineage import Forgotten, Lineage, Origin, ancestors, plan
from gspc_trio.core.ids import TaskId
from gspc_trio.core.staging import split_plan
from gspc_trio.core.task import FailedThrough, Outcome, Reason, Task, TaskError
from gspc_trio.iml.errors import DataLost, ImlError, LayerGone, NoRoom
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.platform import platform
from gspc_trio.protocol.values import TrackedReference, decode_reference, is_range, is_reference
from gspc_trio.workflow.tokens import Outputs

log: logging.Logger = logging.getLogger(__name__)

FIRST_TASK_ID = 1 << 40
"""Tasks that run again for their data have ids from here on."""

LOST_S = 60.0
"""How long a job that is over waits for results that were lost."""

PAUSE_S = 0.05
"""How long to wait for the news that something was lost."""

TRIES = 5
"""How often it is planned anew because more was lost meanwhile."""

_RESTORE = b"\xc1\2"  # see gspc_trio.compute.data


class Keeper(Protocol):
    """Lives as long as some data is needed."""

    data_id: str
    origin: Origin | None


class Recovery:
    """Knows how a job's data came to be, and has it made again when it was lost.

    Args:
        iml: the layer.
        lineage_bytes_max: how much the arguments of remembered tasks may take.
        put_again: makes data of an initial value again: takes its id and its bytes.
        look: tells the job that its engine has something new.
        restored: tells it that lost data is there again, or is lost for good.

    Attributes:
        kept: id -> keeper of data that something refers to.
        forgotten: id -> why it cannot be made again.
    """

    def __init__(
        self,
        iml: Iml,
        lineage_bytes_max: int,
        put_again: Callable[[str, Sequence[memoryview]], Awaitable[None]],
        look: Callable[[], object] = lambda: None,
        restored: Callable[[], object] = lambda: None,
    ) -> None:
        self.look = look
        self.restored = restored
        self.put_again = put_again
        self.kept: WeakValueDictionary[str, Keeper] = WeakValueDictionary()
        self.forgotten: dict[str, str] = {}
        self._iml = iml
        self._lineage = Lineage(lineage_bytes_max)
        self._tasks: dict[TaskId, Task] = {}
        self._ready: deque[Task] = deque()
        self._running: dict[TaskId, tuple[Task, trio.Event, list[bool]]] = {}
        self._last_id = FIRST_TASK_ID
        self._lost: list[str] = []
        self._news = trio.Event()
        self._restoring = 0
        self._needed: Counter[str] = Counter()
        self._to_free: set[str] = set()
        self._idle = trio.Event()

    async def wait_idle(self) -> None:
        """Wait until nothing that was lost is being made again."""
        while self._lost or self._restoring:
            await self._idle.wait()
        await trio.lowlevel.checkpoint()

    @property
    def is_over(self) -> bool:
        """Whether the layer has ended, or cannot be heard any more."""
        return self._iml.is_over

    @property
    def busy(self) -> bool:
        """Whether tasks run again now: what they make for each other is kept by nobody else."""
        return bool(self._running)

    def frees_later(self, data_id: str) -> bool:
        """Return whether data that nothing refers to any more is needed to make other data again.

        If so, it is freed afterwards.
        """
        if data_id in self._needed:
            self._to_free.add(data_id)
            return True
        return False

    # What the job does

    def extracted(self, task: Task) -> None:
        """A task was handed out: it may make data."""
        self._tasks[task.task_id] = task

    def ended(self, task_id: TaskId) -> None:
        """A task has ended for good."""
        self._tasks.pop(task_id, None)

    def origin_of(self, outcome: Outcome) -> Origin | None:
        """Return how the data in an outcome was made."""
        task = self._tasks.get(outcome.task_id)
        if task is None:
            return None
        plan, _, _ = split_plan(task.arguments)
        if plan is not None and plan.ranges:
            return None  # it would write again what may have been overwritten since
        given: dict[str, Origin | None] = {}
        for argument in task.arguments:
            if is_reference(argument):
                origin = argument.keep.origin if isinstance(argument, TrackedReference) else None
                given[decode_reference(argument).data_id] = origin
        made = tuple(_made(value) for values in outcome.values for value in values)
        plain = replace(task, arguments=tuple(map(bytes, task.arguments)))
        return self._lineage.origin(plain, made, given)

    def excuse(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a task that missed data that is being made again: it is to be tried again.

        One that may not run again and had begun to compute is not: what was lost may be its own.
        """
        error = outcome.error
        if outcome.reason is not Reason.FAILED or error is None or error.kind != "DataLost":
            return outcome
        again = self._running.get(outcome.task_id)
        task = self._tasks.get(outcome.task_id) if again is None else again[0]
        if task is None or (outcome.duration_s and not task.options.may_rerun):
            return outcome
        needed = [decode_reference(value).data_id for value in task.arguments if is_reference(value)]
        if any(data_id in self.forgotten for data_id in needed):
            return outcome
        foreign = [data_id for data_id in needed if data_id not in self.kept]
        if again is None and any(f"data {data_id} " in error.message for data_id in foreign):
            return outcome  # somebody else's: nobody will make that again
        if again is None and (self._lost or self._restoring):
            error = replace(error, kind="awaited")  # which may take as long as the task that makes it
        return replace(outcome, reason=Reason.RETURNED, error=error)

    # Values that are put again

    def copy_of(self, pieces: Sequence[memoryview]) -> Sequence[memoryview] | None:
        """Return pieces of an initial value as they will stay, None if there is no room to remember them.

        It may be called in any thread, and what comes of it is not exact.
        """
        if sum(piece.nbytes for piece in pieces) > self._lineage.bytes_max - self._lineage.size_bytes_before:
            return None
        return [piece if piece.readonly else memoryview(bytes(piece)) for piece in pieces]

    def remember(self, keeper: Keeper, pieces: Sequence[memoryview]) -> None:
        """Remember an initial value for as long as its data is kept."""
        keeper.origin = self._lineage.initial(keeper.data_id, pieces)

    # Tasks that run again

    def next(self) -> TaskId | None:
        """Return the id of a task that is to run again, or None."""
        return self._ready[0].task_id if self._ready else None

    def extract(self) -> Task:
        """Return that task."""
        return self._ready.popleft()

    def done(self, task_id: TaskId, well: bool) -> None:
        """A task that ran again has ended."""
        _, event, result = self._running.pop(task_id)
        result.append(well)
        event.set()

    # Losses

    def lost(self, data_ids: tuple[str, ...]) -> None:
        """The layer has lost this data."""
        self._lost += data_ids
        self._news.set()

    async def run(self) -> None:
        """Have lost data made again until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._news.wait()
                self._news = trio.Event()
                wanted, self._lost = self._lost, []
                self._restoring += 1
                nursery.start_soon(self._restore_all, wanted)  # what is lost meanwhile does not wait for this

    async def _restore_all(self, wanted: list[str]) -> None:
        try:
            await self._restore(wanted)
        finally:
            self._restoring -= 1
            self.restored()
            self._idle.set()
            self._idle = trio.Event()

    async def _restore(self, wanted: list[str]) -> None:
        for _ in range(TRIES):
            origins = {name: self.kept[name].origin for name in wanted if name in self.kept}
            above = ancestors(origin for origin in origins.values() if origin is not None)
            async with self._needing(above):  # nobody frees it after the look at it
                there = {name for name in above if await self._is_there(name)}
                missing = {name: origin for name, origin in origins.items() if not await self._is_there(name)}
                for name, origin in list(missing.items()):
                    try:
                        plan({name: origin}, there)
                    except Forgotten as forgotten:  # the others are to be had for all that
                        del missing[name]
                        self.forgotten[name] = str(forgotten)
                        log.warning("%s", forgotten)
                if not missing or await self._run_again(plan(missing, there)):
                    return
        for name in wanted:
            if name in self.kept and not await self._is_there(name):
                self.forgotten[name] = "it could not be made again"

    @asynccontextmanager
    async def _needing(self, data_ids: Sequence[str]) -> AsyncIterator[None]:
        """Keep data from being freed; afterwards free what nothing refers to, and nobody else needs here."""
        self._needed.update(data_ids)
        try:
            yield
        finally:
            for name in data_ids:
                self._needed[name] -= 1
                if not self._needed[name]:
                    del self._needed[name]
                    if name in self._to_free:
                        self._to_free.discard(name)
                        if name not in self.kept:
                            await self._free(name)

    async def _is_there(self, data_id: str) -> bool:
        try:
            await self._iml.data_size(data_id)
        except ImlError:
            return False
        return True

    async def _run_again(self, order: list[Origin]) -> bool:
        """Run the tasks of the origins one after another; return whether all went well."""
        try:
            for origin in order:
                if origin.pieces is not None:
                    try:
                        await self.put_again(origin.made[0], origin.pieces)
                    except ImlError as error:
                        log.warning("data %s cannot be put again: %s", origin.made[0], error)
                        return False
                    continue
                assert origin.task is not None
                self._last_id += 1
                ids = _RESTORE + msgpack.packb(origin.made)
                task = replace(origin.task, task_id=self._last_id, arguments=(*origin.task.arguments, ids))
                event, result = trio.Event(), list[bool]()
                self._running[task.task_id] = (task, event, result)
                self._ready.append(task)
                self.look()
                await event.wait()
                if not result[0]:
                    return False
            return True
        finally:
            for origin in order:
                for name in filter(None, origin.made):
                    if name not in self.kept and not self.frees_later(name):
                        await self._free(name)

    async def _free(self, data_id: str) -> None:
        try:
            await self._iml.free(data_id)
        except ImlError as error:
            log.debug("%s", error)


def _made(value: bytes) -> str:
    """Return the id of the data that a value is, "" if it is none that its task has made."""
    if not is_reference(value):
        return ""
    reference = decode_reference(value)
    return "" if is_range(reference) else reference.data_id


class ResultReader:
    """Opens a job's results before the job ends: those that were lost can still be made again then.

    Nothing of the layer is ever read in trio's thread: its server may be in that thread, too.

    Args:
        recovery: of the job.
        read: opens all results; blocks.
        nursery: in which that is done.
    """

    def __init__(self, recovery: Recovery, read: Callable[[], Outputs], nursery: trio.Nursery) -> None:
        self._recovery = recovery
        self._read = read
        self._nursery = nursery
        self._patience = trio.CancelScope()
        self._opening = False
        self._is_over = False
        self._opened: Outputs = {}
        self._problem: Exception | None = None

    def outputs(self) -> Outputs:
        """Return the results that were opened: none if the job ended at once, for its scope was cancelled.

        Raises:
            ImlError: they could not be opened.
        """
        if self._problem is not None:
            raise self._problem
        return self._opened

    def may_end(self, finished: bool) -> bool:
        """Return whether the job may end; if not, it is told to look again when it may.

        Args:
            finished: it is to end well: it waits for results that were lost. Otherwise nothing is made again.
        """
        if not finished:
            self._patience.cancel()
        if not self._opening:
            self._opening = True
            self._nursery.start_soon(self._open)
        return self._is_over

    async def open_now(self) -> None:
        """Open what is there, whatever else goes on."""
        try:
            self._opened = await platform().in_thread(self._read)
            self._problem = None
        except Exception as error:  # whoever asks for the results is told
            log.info("a result cannot be opened: %s", error)
            self._problem = error

    async def _open(self) -> None:
        self._patience.deadline = trio.current_time() + LOST_S
        with self._patience:
            await self._open_patiently()
        if self._patience.cancelled_caught and self._problem is None:
            await self.open_now()
        self._is_over = True
        self._recovery.look()

    async def _open_patiently(self) -> None:
        while True:
            await self._recovery.wait_idle()
            before = self._problem
            await self.open_now()
            if not isinstance(self._problem, DataLost | LayerGone | NoRoom):
                return
            # What is lost is told to everybody, also to us, and then it is made again. A server of this
            # host that has died is started again. Others may give back memory.
            if before is None and isinstance(self._problem, NoRoom):
                log.warning("results wait for room to be opened in: %s", self._problem)
            if self._recovery.is_over:
                return
            if self._recovery.forgotten and not isinstance(self._problem, LayerGone):
                return  # it is not made again; of a server that is gone it is soon known what that has taken
            await trio.sleep(PAUSE_S)


class StagingEngine(EngineWrapper):
    """An engine whose tasks state the staging that their data needs, and that runs tasks again for lost data.

    Args:
        engine: whose tasks they are.
        staged: returns a task with the staging that its data needs.
        recovery: has lost data made again.
    """

    def __init__(self, engine: Engine, staged: Callable[[Task], Task], recovery: Recovery) -> None:
        super().__init__(engine)
        self._engine = engine
        self._staged = staged
        self._recovery = recovery
        self.take_over: Callable[[TaskId], Task | None] = engine.take_over

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready and not yet extracted, or None."""
        again = self._recovery.next()
        return self._engine.next() if again is None else again

    def extract(self, task_id: TaskId) -> Task:
        """Return the task; it counts as extracted from now on."""
        if task_id >= FIRST_TASK_ID:
            return self._staged(self._recovery.extract())
        task = self._staged(self._engine.extract(task_id))
        self._recovery.extracted(task)
        return task

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Put the result of an extracted task into the workflow; not of one that ran again."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, True)
        else:
            self._recovery.ended(task_id)
            self._engine.inject(task_id, values)

    def fail(self, task_id: TaskId, error: TaskError) -> tuple[FailedThrough, ...] | None:
        """The extracted task has failed for good; return those that fail through it."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, False)
            return ()
        self._recovery.ended(task_id)
        return self._engine.fail(task_id, error)

    def cancelled(self, task_id: TaskId) -> tuple[FailedThrough, ...] | None:
        """The extracted task was cancelled; return those that fail through it."""
        if task_id >= FIRST_TASK_ID:
            self._recovery.done(task_id, False)
            return ()
        self._recovery.ended(task_id)
        return self._engine.cancelled(task_id)
