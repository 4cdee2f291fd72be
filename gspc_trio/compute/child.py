"""A compute process, from the fork to its end (RIF-3)."""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType, ModuleType
from typing import NamedTuple

from gspc_trio.compute import data, modules, process_tree, system
from gspc_trio.compute.channel import DEFINE, THREADS, TRANSFERS, Message, pack, unpack
from gspc_trio.compute.functions import Runner
from gspc_trio.compute.loop import Item, Loop
from gspc_trio.compute.output import ProcessOutput
from gspc_trio.compute.tidy import changes
from gspc_trio.core.current import ComputePlace, offer_place
from gspc_trio.core.imports import enter_compute_process

ORPHANED_STATUS = 143
"""Exit status of a compute process that ends because its template or its RIF is gone."""

KILL_S = 2.0
"""Bound on ending what it has started, when it ends."""

_FAILED_START_STATUS = 70

_compute_pid = 0  # of this compute process; a fork of the user's code has another


def run_child(
    job: int,
    descriptors: Sequence[int],
    output: tuple[int, int],
    *,
    cpus: Sequence[int],
    gpus: Sequence[int],
    kind: int,
    template_pid: int,
) -> None:
    """Turn this fresh fork of the template into a compute process and work until the RIF is gone; never
    returns.

    Args:
        job: a file with the packed description of the job (``components.worker.messages.OpenJob``).
        descriptors: channels of tasks and results, or the one of a process that runs no tasks.
        output: files for standard output and error.
        cpus: to run on, empty for no pinning.
        gpus: to see, empty for no restriction.
        kind: whether it runs tasks, hosts threads that do, or moves what URIs name.
        template_pid: the parent, without which it does not go on.
    """
    status = _FAILED_START_STATUS
    try:
        _leave_template(template_pid)
        description = unpack(os.pread(job, os.fstat(job).st_size, 0))
        captured = ProcessOutput(*output)
        _close_others(keep={0, 1, 2, *descriptors, *output})
        faulthandler.enable(file=2)
        _pin(cpus, gpus)
        _enter_job(description)
        enter_compute_process()
        gc.enable()
        channels = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        initializer = description.get("initializer", b"")
        address, job_id, traceparent = description["place"]
        if kind == TRANSFERS:
            from gspc_trio.compute.uri_transfers import serve

            serve(channels[0])
        elif kind == THREADS:
            from gspc_trio.compute.threads import ThreadHost

            changes.watch_forks()
            ThreadHost(channels[0], initializer, address, job_id, traceparent).run()
        else:
            place = ComputePlace(address, job_id, traceparent)
            place.is_silent = captured.is_untouched
            offer_place(lambda: place)
            open_code = partial(Runner, echo=output)
            loop = _loop_for(description)(channels[0], channels[1], captured, open_code, initializer, place)
            if "tasks_max" in description:
                run_turns(description["tasks_max"], partial(_enter_turn, loop, os.getpid()))
            else:
                _watch_changes()
                loop.run()
        status = ORPHANED_STATUS
        process_tree.kill_all_descendants(os.getpid(), KILL_S)
    except BaseException as error:  # whatever it is, the template's code above must not run in the child
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _loop_for(job: dict[str, Message]) -> type[Loop]:
    """Return the loop for a job: one that counts if that is wanted."""
    if "io" not in job:
        return Loop
    from gspc_trio.compute.io.loop import CountingLoop

    CountingLoop.calls = job["io"] == "calls"
    return CountingLoop


def _watch_changes() -> None:
    changes.watch_forks()
    changes.watch()


def _enter_turn(loop: Loop, waiting_pid: int) -> Loop:
    """Turn this fork of a compute process, which waits for it, into one that runs tasks."""
    global _compute_pid
    _compute_pid = os.getpid()
    system.become_subreaper()
    system.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != waiting_pid:  # it died before the line above
        os._exit(ORPHANED_STATUS)
    _watch_changes()
    return loop


def _leave_template(template_pid: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    os.setsid()
    system.set_name("gspc-compute")
    system.become_subreaper()
    system.set_parent_death_signal(signal.SIGTERM)
    if os.getppid() != template_pid:  # it died before the line above
        os._exit(ORPHANED_STATUS)


def _terminated(number: int, frame: FrameType | None) -> None:
    """End with all descendants; a fork of the user's code just ends."""
    del number, frame
    if os.getpid() == _compute_pid:
        process_tree.kill_all_descendants(os.getpid(), KILL_S)
    os._exit(ORPHANED_STATUS)


def _close_others(keep: set[int]) -> None:
    """Close what the template has open, and put /dev/null on standard input."""
    global _compute_pid
    _compute_pid = os.getpid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue


def _pin(cpus: Sequence[int], gpus: Sequence[int]) -> None:
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:  # shown with the first task: slower, not wrong
            print(f"cannot run on CPUs {list(cpus)} only: {error.strerror}", file=sys.stderr)
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))


def _enter_job(job: dict[str, Message]) -> None:
    """Make it look as if the job server ran here: working directory, module search path, its modules."""
    if job["cwd"] and os.path.isdir(job["cwd"]):
        try:
            os.chdir(job["cwd"])
        except OSError as error:  # shown with the first task, which may do without
            print(f"cannot work in {job['cwd']}: {error.strerror}", file=sys.stderr)
    paths = [path for path in job["sys_path"] if path == "" or os.path.exists(path)]
    sys.path[:] = paths + [path for path in sys.path if path not in paths]
    sys.argv = [""]
    sys.modules["__main__"] = ModuleType("__main__")
    if "data" in job:
        data.settle(*job["data"])
    if "process_key" in job:
        from multiprocessing.process import current_process  # not every job has one

        current_process().authkey = job["process_key"]
    modules.install({name: (file_name, text) for name, (file_name, text) in job["modules"].items()})


KILL_S = 2.0
"""Bound on ending what the tasks of one process have left running."""


class HandedOver(NamedTuple):
    """What one process leaves to the next.

    Attributes:
        codes: number -> encoded code, of those that it was told.
        items: what it has read and not begun.
    """

    codes: dict[int, bytes]
    items: list[Item]


class Turn:
    """The part of the tasks that one process runs.

    Args:
        loop: that runs them.
        tasks_max: how many it runs.
        before: what the process before has left.
    """

    def __init__(self, loop: Loop, tasks_max: int, before: HandedOver) -> None:
        self._loop = loop
        self._left = tasks_max
        self._items = before.items
        for code_id, code in before.codes.items():
            loop.define(code_id, code)

    def run(self) -> HandedOver | None:
        """Run tasks until there were enough; return what is left, None if the channel has ended."""
        self._loop.begin()
        while True:
            items = self._items or self._loop.receive()
            if items is None:
                return None
            for position, item in enumerate(items):
                self._loop.handle(item)
                self._left -= item[0] != DEFINE
                if not self._left:
                    self._loop.finish()
                    return HandedOver(self._loop.codes, items[position + 1 :])
            self._items = []


def run_turns(tasks_max: int, enter: Callable[[], Loop]) -> bool:
    """Run the tasks of a compute process in forks of it, each of which runs so many.

    After so many tasks another process goes on, with nothing of what they left. The one that the template has
    forked runs no task: it forks those that do, one after another, and waits. Each hands over what it has
    read and not begun, with the codes that it knows.

    It ends as a fork ends that does not come to its end: killed by the same signal, or with the same status.

    Args:
        tasks_max: of one process.
        enter: called in each fork, returns the loop.

    Returns:
        whether this is the process that waits, when the other side has ended the channel; False in a fork.
    """
    left = HandedOver({}, [])
    while True:
        descriptor = os.memfd_create("gspc-renewal")
        pid = os.fork()
        if not pid:
            handed = Turn(enter(), tasks_max, left).run()
            content = pack([False] if handed is None else [True, *handed])
            os.pwrite(descriptor, content, 0)
            return False
        _, status = os.waitpid(pid, 0)
        process_tree.kill_all_descendants(os.getpid(), KILL_S)
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        os.close(descriptor)
        if not content:
            _end_like(status)
        goes_on, *fields = unpack(content)
        if not goes_on:
            return True
        left = HandedOver(*fields)


def _end_like(status: int) -> None:
    """End as another process did."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        faulthandler.disable()  # it has said where
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if code not in (-signal.SIGKILL, -signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
