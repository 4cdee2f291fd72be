"""The loop of a compute process (or thread): receive tasks, run them in order, send results."""

from __future__ import annotations

import mmap
import os
import select
import socket
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from struct import pack as pack_struct
from time import perf_counter, time
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gspc_trio.compute import system
from gspc_trio.compute.channel import (
    DEFINE,
    INITIALIZER,
    LARGE,
    PACKET_BYTES_MAX,
    UNDEFINED,
    UNMADE,
    Message,
    pack,
    unpack,
)
from gspc_trio.compute.code import decode_code
from gspc_trio.compute.errors import TaskFailure, describe
from gspc_trio.compute.functions import Runner, find_call
from gspc_trio.compute.output import Output
from gspc_trio.compute.results.unsent import GATHER_S, UNSENT_BYTES_MAX, UnsentResults
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import ComputePlace
from gspc_trio.core.held import cpus_here, hold
from gspc_trio.core.trace_context import TRACEPARENT, TraceContext
from gspc_trio.protocol.values import RAISED_BY_USERS

if TYPE_CHECKING:  # few tasks have one
    from gspc_trio.compute.wrapper import Wrapped

QUICK_S = 0.0001
"""Results wait at most about so long: a code that takes longer starts only after they are sent."""

IDLE_S = 1
"""After so long without a task memory that tasks have freed is given back."""

_TRACEPARENT = TRACEPARENT.encode()
_UNMADE = (UNMADE, "the task whose result it takes did not finish directly before it", "", b"")

_IDLE, _FOR_EVER = pack_struct("ll", IDLE_S, 0), pack_struct("ll", 0, 0)
_DESCRIPTOR_BYTES = socket.CMSG_SPACE(4)
_AT_ONCE, _LATER = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CMSG_CLOEXEC)

Item = list[Message]
"""What arrives in a packet: a task, or a code that tasks will name."""

Received = tuple[int, list[tuple[int, int, bytes]]]
"""Length of a packet, and what came with it."""


class Loop:
    """Runs what arrives on the channel of tasks until that ends.

    Args:
        tasks, results: the channels.
        output: what tasks print.
        open_code: makes a code ready to run.
        initializer: code that is run once, before the first task; b"" for none. While it fails, tasks do.
        place: told which task runs.

    Attributes:
        codes: number -> encoded code, of those that it was told.
    """

    def __init__(
        self,
        tasks: socket.socket,
        results: socket.socket,
        output: Output,
        open_code: Callable[[bytes], Runner] = Runner,
        initializer: bytes = b"",
        place: ComputePlace | None = None,
    ) -> None:
        self._place = place or ComputePlace("", "")
        self._unsent = UnsentResults(results)
        self._place.results = self
        self._tasks = tasks
        self._poll = select.poll()
        self._poll.register(tasks, select.POLLIN)
        self._output = output
        self._open_code = open_code
        self._initializer = initializer
        self._packet = memoryview(bytearray(PACKET_BYTES_MAX))
        self.codes: dict[int, bytes] = {}
        self._runners: dict[int, Runner] = {}
        self._has_opened: bool = False  # a code, for the task that runs
        self._wrapped: Wrapped | None = None
        self._quick: set[int] = set()  # codes whose last run was shorter than QUICK_S
        self._sending: set[int] = set()  # codes that have sent results themselves, if they were due
        self._trace_text: Callable[[int, int], bytes] | None = None
        self._last: list[Any] | None = None  # result of the task that ran last, None if it failed
        self._grown = False  # freed memory may have been kept

    def run(self) -> None:
        """Work until the other side closes the channel of tasks."""
        self.begin()
        while True:
            items = self.receive()
            if items is None:
                return
            for item in items:
                self.handle(item)

    def begin(self) -> None:
        """Told in the process that runs tasks, before the first one."""

    def finish(self) -> None:
        """Send what has gathered before this process ends."""
        self.send()

    def due_s(self) -> float | None:
        """Return in how many seconds the results that have gathered are to be sent; None: there are none."""
        return self._unsent.due_s()

    def _learn(self, code_id: int, duration_s: float) -> None:
        """Note how a task of a code has run."""
        place = self._place
        (self._sending.add if place.sends_results else self._sending.discard)(code_id)
        place.sends_results = False
        if duration_s < QUICK_S:
            self._quick.add(code_id)
        else:
            self._quick.discard(code_id)
            if not self._grown:
                self._note_growth(True)

    def _may_wait(self, code_id: int) -> bool:
        """Whether the results that have gathered may wait while a task of this code runs."""
        if self._unsent.size_bytes > UNSENT_BYTES_MAX:
            return False
        age_s = perf_counter() - self._unsent.oldest_s
        if code_id in self._sending:
            # With nothing behind this one, who has more had better hear of them before it ends.
            return age_s < GATHER_S and bool(self._poll.poll(0))
        return code_id in self._quick and age_s <= QUICK_S

    def _send_or_watch(self, may_wait: bool) -> None:
        """Send the results that have gathered before a task begins, or have them wait until they are due."""
        if may_wait:
            self._unsent.watch()
        else:
            self.send()

    def send(self) -> None:
        """Send the results that have gathered."""
        self._unsent.send()

    def receive(self) -> list[Item] | None:
        """Return the items of the next packet, None at the end; send results before waiting for it."""
        size, ancillary = self._receive_now() or self._receive_later()
        if size == 0:
            return None
        items: list[Item] = unpack(self._packet[:size])
        if ancillary:
            descriptors = array("i", ancillary[0][2])
            return [_read_item(descriptor) for descriptor in descriptors]
        return items

    def _receive_now(self) -> Received | None:
        if not self._poll.poll(0):  # to ask costs a fifth of what it costs to find nothing
            return None
        try:
            return self._receive_packet(_AT_ONCE)
        except BlockingIOError:  # the RIF has just taken it back
            return None

    def _receive_later(self) -> Received:
        self.send()
        try:
            return self._receive_packet(_LATER)
        except BlockingIOError:  # nothing has come within IDLE_S
            self._last = None
            system.give_back_memory()
            self._note_growth(False)
        return self._receive_packet(_LATER)

    def _note_growth(self, grown: bool) -> None:
        """Freed memory may have been kept from now on, or has been given back."""
        self._grown = grown
        self._tasks.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _IDLE if grown else _FOR_EVER)

    def _receive_packet(self, flags: int) -> Received:
        size, ancillary, _, _ = self._tasks.recvmsg_into([self._packet], _DESCRIPTOR_BYTES, flags)
        return size, ancillary

    def define(self, code_id: int, data: bytes) -> None:
        """Take a code that tasks will name."""
        self.codes[code_id] = data

    def handle(self, item: Item) -> None:
        """Do what an item says."""
        if item[0] == DEFINE:
            self.define(*item[1:])
            return
        assert item[0] != LARGE, "a large item comes with a descriptor"
        after = item.pop() if len(item) > 9 else None
        directory = item.pop() if len(item) > 8 else b""
        held = item.pop() if len(item) > 7 else ()
        _, task_id, attempt, code_id, arguments, memory_bytes, may_rerun = item
        if after is None:
            self._last = None  # else it would take up memory while this one runs
        elif not self._fill(arguments, after):
            self._unsent.add(pack([task_id, attempt, (), 0.0, 0.0, b"", b"", _UNMADE]), perf_counter())
            return
        is_staged = directory[:1] == b"\0"  # here, which may take as long as files do
        if self._unsent:
            # What takes a result may also wait for what is done with that result elsewhere.
            self._send_or_watch(after is None and not is_staged and may_rerun and self._may_wait(code_id))
        place = self._place
        place.task_id, place.attempt = task_id, attempt
        if place.trace is not None:
            self.show_trace(place.trace)
        started_s, begun = time(), perf_counter()
        stdout = stderr = b""
        error = None
        try:
            runner = self._runners.get(code_id) or self._open(code_id)
            if directory:
                self.enter(directory)
            if held:
                with together(held):
                    values, stdout, stderr = runner.run(arguments, memory_bytes)
            else:
                values, stdout, stderr = runner.run(arguments, memory_bytes)
            if self._wrapped is not None:
                self._wrapped.stage_out()
        except BaseException as problem:
            values = []
            error = describe(problem, memory_bytes)
            if place.cut_off and may_rerun:  # through no doing of its own: it is run again
                error = (UNDEFINED, place.cut_off, "", b"")
            if isinstance(problem, TaskFailure):
                stdout, stderr = problem.stdout, problem.stderr
            if place.on_end is not None:
                place.end()
            self.check_interrupted(problem)
        ended = perf_counter()
        if place.on_end is not None:
            place.end()
        if changes.made:
            changes.undo()
        if self._wrapped is not None:
            self._wrapped.remove()
            self._wrapped = None
        duration_s = ended - begun
        self._learn(code_id, duration_s)
        printed, complained = self._output.take()
        result = [task_id, attempt, values, started_s, duration_s]
        if printed or complained or stdout or stderr or error or self._has_opened:
            result += [printed + stdout, complained + stderr]
            if error or self._has_opened:
                result.append(error)
            if self._has_opened:
                result.append(True)
                self._has_opened = False
        self._last = None if error else result
        self._unsent.add(pack(result), ended)
        if not may_rerun:  # nor may it be lost with what comes next
            self.send()

    def _fill(self, arguments: list[bytes], after: list[int]) -> bool:
        """Put the result of the task that ran last into the arguments; return False if it is another one."""
        last, self._last = self._last, None
        if last is None or last[:2] != after:
            return False
        value = last[2][0][0]
        arguments[:] = [argument or value for argument in arguments]
        return True

    def enter(self, directory: bytes) -> None:
        """Have a task run in a directory of its own; it is left when the task has ended."""
        if directory[:1] == b"\0":  # it is to be made here
            from gspc_trio.compute.wrapper import Wrapped

            self._wrapped = Wrapped(directory[1:])
            directory = os.fsencode(self._wrapped.stage_in())
        os.chdir(directory)

    def show_trace(self, trace: TraceContext) -> None:
        """Put the trace context of the task that begins into the environment."""
        if self._trace_text is None:
            self._trace_text = trace.texts()
        changes.put_variable(_TRACEPARENT, self._trace_text(self._place.task_id, self._place.attempt))

    def check_interrupted(self, problem: BaseException) -> None:
        """Told what a task raised; a loop in a thread ends itself when it was interrupted."""

    def _open(self, code_id: int) -> Runner:
        """Open a code at its first use, so that what goes wrong there is the task's own failure."""
        if self._initializer:
            self._initialize()
        data = self.codes.get(code_id)
        if data is None:
            raise TaskFailure(UNDEFINED, "its code was taken back before it")
        runner = self._runners[code_id] = self._open_code(data)
        self._has_opened = True
        self._keep_changes()
        return runner

    def _initialize(self) -> None:
        """Run the initializer; what it changes in the process stays."""
        try:
            run_initializer(self._initializer)
        except RAISED_BY_USERS as error:
            kind, message, traceback, _ = describe(error)
            raise TaskFailure(INITIALIZER, f"{kind}: {message}", traceback=traceback) from error
        self._initializer = b""
        self._keep_changes()

    def _keep_changes(self) -> None:
        changes.keep()
        self._output.keep()


def _read_item(descriptor: int) -> Item:
    try:
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            item: Item = unpack(view)
            return item
    finally:
        os.close(descriptor)


@contextmanager
def together(described: Sequence[str]) -> Iterator[None]:
    """Hold these resources, and run on all their CPUs of this host; afterwards as before.

    A worker is pinned to the CPUs of its own resource, which is the first of these, or not at all.
    """
    before = os.sched_getaffinity(0)
    hold(described)
    try:
        cpus = cpus_here(described)
        if before <= cpus:
            with suppress(OSError):  # CPUs that this process may not use: it stays where it is
                os.sched_setaffinity(0, cpus)
        yield
    finally:
        hold(())
        with suppress(OSError):
            os.sched_setaffinity(0, before)


_BY_ITSELF = (FunctionType, type, ModuleType)
"""What an initializer uses of these, tasks bring themselves."""


def run_initializer(data: bytes) -> None:
    """Run an encoded initializer, once, before the first task; what it returns is nobody's.

    A function of the main program travels by value, with the globals that it uses, and so do tasks: each
    would have globals of its own. But what an initializer sets is for tasks. So it takes the place of what
    functions of the same module bring later.

    Raises:
        Exception: whatever opening or calling it raises.
    """
    call = find_call(decode_code(data), None, None)
    names: dict[str, object] = getattr(_function_in(call), "__globals__", {})
    before = dict(names)
    call()
    module = names.get("__name__")
    if not isinstance(module, str) or vars(sys.modules.get(module, sys)) is names:
        return  # it was imported, and so are the tasks' functions of its module
    share = {
        name: value
        for name, value in names.items()
        if not name.startswith("__") and (before.get(name, names) is not value or not _comes_by_itself(value))
    }
    if share:
        _share_globals(module, share)


def _comes_by_itself(value: object) -> bool:
    return isinstance(value, _BY_ITSELF)


def _function_in(call: object) -> object:
    while isinstance(call, partial | MethodType):
        call = call.func if isinstance(call, partial) else call.__func__
    return call


def _share_globals(module: str, share: dict[str, object]) -> None:
    """Give functions of a module that travel by value these globals, whatever they bring."""
    import cloudpickle.cloudpickle as by_value

    opened: Callable[[FunctionType, object], None] = by_value._function_setstate

    def open_and_share(function: FunctionType, state: object) -> None:
        opened(function, state)
        if function.__globals__.get("__name__") == module:
            function.__globals__.update(share)

    by_value._function_setstate = open_and_share
