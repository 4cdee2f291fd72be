"""A host of threads: one compute process in which each worker of a job is a thread, where the user says so.

A thread cannot be killed: it is asked, by an exception at its next bytecode, until it ends. What takes the
process down takes all its threads down.
"""

from __future__ import annotations

import io
import os
import select
import socket
import sys
import threading
from array import array
from contextlib import suppress
from functools import partial
from typing import Any

from gspc_trio.compute import data, process_tree, system
from gspc_trio.compute.channel import (
    CONTROL_BYTES_MAX,
    INTERRUPT_THREAD,
    OPEN_THREAD,
    OUTPUT_BYTES_MAX,
    unpack,
)
from gspc_trio.compute.errors import TaskFailure
from gspc_trio.compute.functions import Runner
from gspc_trio.compute.loop import Loop
from gspc_trio.core.current import ComputePlace, current_traceparent, offer_place
from gspc_trio.core.trace_context import TRACEPARENT, TraceContext

ASK_AGAIN_S = 0.1
"""An interrupted thread that goes on is interrupted again after so long: code may swallow exceptions."""

KILL_S = 2.0
"""Bound on ending a program of an interrupted thread."""

_PROGRAM = "GSPC_THREAD"  # environment variable that says which thread's program a process comes from

_places = threading.local()


class TaskCancelled(BaseException):
    """Raised in a task that runs in a thread and is to stop."""


def interrupt_unless(undivided: threading.Lock, thread: int) -> bool:
    """Interrupt the task that a thread runs, unless it is at something that must not stay half done.

    Args:
        undivided: held by the task meanwhile, see ``ComputePlace``.
        thread: its identifier.

    Returns:
        whether it was interrupted; if not, ask again.
    """
    if not undivided.acquire(blocking=False):
        return False
    try:
        system.interrupt_thread(thread, TaskCancelled)
    finally:
        undivided.release()
    return True


class ThreadHost:
    """Opens and interrupts threads as the RIF says on the control channel, until that ends.

    Args:
        control: the channel.
        initializer: encoded code that each thread runs before its first task; b"" for none.
        place: what the place of each task is made of (``core.current``): address, job, trace context.
    """

    def __init__(self, control: socket.socket, initializer: bytes = b"", *place: str) -> None:
        self._place = place or ("", "")
        self._control = control
        self._initializer = initializer
        self._workers: dict[int, _Worker] = {}
        self._wakeup, self._wakeup_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._output = ThreadOutput()

    def run(self) -> None:
        """Serve until the RIF closes the control channel."""
        self._output.install()
        offer_place(lambda: getattr(_places, "place", None))
        _have_threads_inherit(self._output)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            stopping = any(worker.stopping for worker in self._workers.values())
            for descriptor, _ in poll.poll(ASK_AGAIN_S * 1000 if stopping else None):
                if descriptor == self._wakeup:
                    os.read(self._wakeup, 4096)
                elif not self._receive():
                    return
            for number, worker in list(self._workers.items()):
                if not worker.is_alive():
                    worker.close()
                    del self._workers[number]
                elif worker.stopping:
                    worker.interrupt()

    def _receive(self) -> bool:
        data, ancillary, _, _ = self._control.recvmsg(
            CONTROL_BYTES_MAX, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return False
        kind, number, *fields = unpack(data)
        if kind == OPEN_THREAD:
            tasks, results, *files = array("i", ancillary[0][2])
            sockets = socket.socket(fileno=tasks), socket.socket(fileno=results)
            place = ComputePlace(*self._place)
            printed = _PrintedFile(files[0]), _PrintedFile(files[1])
            worker = _Worker(
                number, fields[0], sockets, self._output, printed, self._wakeup_end, self._initializer, place
            )
            self._workers[number] = worker
            worker.start()
        elif kind == INTERRUPT_THREAD and number in self._workers:
            self._workers[number].stopping = True  # the loop above interrupts it
        return True


class _Worker(threading.Thread):
    """One worker of the job. The host closes its sockets: no exception that comes late can prevent it."""

    def __init__(
        self,
        number: int,
        cpus: list[int],
        sockets: tuple[socket.socket, socket.socket],
        output: ThreadOutput,
        printed: tuple[_PrintedFile, _PrintedFile],
        wakeup: int,
        initializer: bytes,
        place: ComputePlace,
    ) -> None:
        self._place = place
        self._undivided = place.undivided = threading.Lock()
        super().__init__(name=f"worker {number}", daemon=True)
        self.stopping = False
        self._cpus = cpus
        self._sockets = sockets
        self._output = output
        self._printed = printed
        self._wakeup = wakeup
        self._watch = _ProgramWatch(f"{os.getpid()}:{number}")
        open_code = partial(Runner, watch=self._watch)
        self._loop = _ThreadLoop(*sockets, output, open_code, initializer, place)

    def run(self) -> None:
        """Work until the channel of tasks ends or the thread is interrupted."""
        try:
            if self._cpus:
                with suppress(OSError):  # slower, not wrong
                    os.sched_setaffinity(0, self._cpus)
            self._output.begin(self._printed)
            _places.place = self._place
            self._loop.run()
        except (TaskCancelled, OSError):
            pass  # interrupted between two tasks, or the RIF is gone
        finally:
            with suppress(TaskCancelled):
                data.serializer.task_ended()  # if it was interrupted while it did that
                for each in self._printed:
                    each.flush()
            os.write(self._wakeup, b".")

    def interrupt(self) -> None:
        """Ask the thread to end, and end the program that it waits for."""
        if not self._loop.ending and self.ident is not None:
            interrupt_unless(self._undivided, self.ident)
            self._watch.kill_program()

    def close(self) -> None:
        """Close its channels: the RIF sees that it has ended."""
        for each in (*self._printed, *self._sockets):
            each.close()


class _ThreadLoop(Loop):
    """Ends when the task it runs was interrupted, after sending what had finished before."""

    ending = False

    def enter(self, directory: bytes) -> None:
        """Refuse: all threads of a process have one working directory."""
        del directory
        raise TaskFailure("refused", "tasks with files need compute in processes, not in threads")

    def show_trace(self, trace: TraceContext) -> None:
        """Do nothing: all threads of a process have one environment."""
        del trace

    def check_interrupted(self, problem: BaseException) -> None:
        """Go on raising an interruption."""
        if isinstance(problem, TaskCancelled):
            self.ending = True
            self.send()
            raise problem


class _ProgramWatch:
    """The program that a thread runs now, if any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mark = f"{_PROGRAM}={name}".encode()
        self._lock = threading.Lock()
        self._pid = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a program that begins now in this thread."""
        traceparent = current_traceparent()
        trace = {TRACEPARENT: traceparent} if traceparent else {}
        return {_PROGRAM: self._name, **trace}

    def started(self, pid: int) -> None:
        """A program has started."""
        with self._lock:
            self._pid = pid

    def ended(self) -> None:
        """It has ended; its number may soon be another's."""
        with self._lock:
            self._pid = 0

    def kill_program(self) -> None:
        """Kill the program with everything below it, also what has detached itself from it."""
        with self._lock:
            if not self._pid:
                return
            process_tree.kill_tree(self._pid, KILL_S)
            while orphans := self._orphans():
                for pid in orphans:
                    process_tree.kill_tree(pid, KILL_S)

    def _orphans(self) -> list[int]:
        return [pid for pid in process_tree.children(os.getpid()) if self._is_orphan(pid)]

    def _is_orphan(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return pid != self._pid and self._mark in file.read().split(b"\0")
        except OSError:
            return False


def _have_threads_inherit(output: ThreadOutput) -> None:
    """Let each thread that a task starts print as that task, and find its place (``core.current``)."""
    start = threading.Thread.start

    def start_inheriting(thread: threading.Thread) -> None:
        place, printed = getattr(_places, "place", None), output.printed

        def run_inheriting() -> None:
            del thread.__dict__["run"]
            _places.place = place
            if printed is not None:
                output.begin(printed)
            thread.run()

        if place is not None:
            thread.__dict__["run"] = run_inheriting
        start(thread)

    setattr(threading.Thread, start.__name__, start_inheriting)


class _PrintedFile:
    """One stream of what a worker's task prints: a file without a name, which the RIF has open, too.

    Args:
        descriptor: of the file; writes are appended.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = bytearray()
        self._size = 0
        self._lock = threading.Lock()  # threads of a task write here, too

    def write(self, data: bytes) -> None:
        """Take bytes; the file has them when their line has ended."""
        with self._lock:
            self._pending += data
            if b"\n" in data or len(self._pending) > OUTPUT_BYTES_MAX:
                self._write_pending()

    def flush(self) -> None:
        """Let the file have all of it."""
        with self._lock:
            self._write_pending()

    def _write_pending(self) -> None:
        data = bytes(self._pending)
        self._pending.clear()
        if data and self._descriptor >= 0:
            with suppress(OSError):  # the disk is full: no fault of whoever prints
                self._size += os.write(self._descriptor, data)

    def take(self) -> bytes:
        """Return the last part of what was written, and empty the file."""
        if not (self._pending or self._size):
            return b""
        with self._lock:
            self._write_pending()
            tail = os.pread(self._descriptor, OUTPUT_BYTES_MAX, max(0, self._size - OUTPUT_BYTES_MAX))
            os.ftruncate(self._descriptor, 0)
            self._size = 0
        return tail

    def close(self) -> None:
        """Close the file; what a thread that a task has left prints later is lost."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class ThreadOutput:
    """What each thread prints by Python; other code writes to files that nobody reads."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def install(self) -> None:
        """Take the place of ``sys.stdout`` and ``sys.stderr``."""
        sys.stdout = _ThreadStream(self, 0)
        sys.stderr = _ThreadStream(self, 1)

    def begin(self, printed: tuple[_PrintedFile, _PrintedFile]) -> None:
        """Keep there what the calling thread prints from now on."""
        self._of_thread.printed = printed

    @property
    def printed(self) -> tuple[_PrintedFile, _PrintedFile] | None:
        """Where it is kept what the calling thread prints; None if it is not."""
        return getattr(self._of_thread, "printed", None)

    def take(self) -> tuple[bytes, bytes]:
        """Return the last part of what the calling thread has printed since the last call."""
        stdout, stderr = self._of_thread.printed
        return stdout.take(), stderr.take()

    def keep(self) -> None:
        """Do nothing: nothing is put back after a task."""

    def write(self, index: int, data: bytes) -> None:
        """Keep what the calling thread prints."""
        if (printed := self.printed) is not None:
            printed[index].write(data)

    def flush(self, index: int) -> None:
        """Let be seen what the calling thread has printed of a line that has not ended."""
        if (printed := self.printed) is not None:
            printed[index].flush()


class _ThreadStream(io.TextIOBase):
    """A text stream that hands everything to the output of the thread that writes."""

    encoding = "utf-8"

    def __init__(self, output: ThreadOutput, index: int) -> None:
        self._output = output
        self._index = index
        self.buffer = _ThreadBytes(output, index)

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        self._output.write(self._index, text.encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        self._output.flush(self._index)


class _ThreadBytes(io.RawIOBase):
    """The same for bytes."""

    def __init__(self, output: ThreadOutput, index: int) -> None:
        self._output = output
        self._index = index

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._output.write(self._index, bytes(data))
        return len(data)
