"""A template that was started before whoever runs it is there."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from gspc_trio import Executor
from gspc_trio.components.worker.shell.compute import ComputeError, open_process_backend
from gspc_trio.components.worker.shell.template_process import start_template
from gspc_trio.compute import process_tree
from gspc_trio.compute.sweep import marked
from gspc_trio.policies.scheduling import PolicyError
from tests.components.worker.shell.support import CORE, Recorder, a_job

pytestmark = pytest.mark.process


async def test_a_backend_takes_the_template_that_was_started_before() -> None:
    started = start_template()
    pid = started.pid
    async with open_process_backend(started) as backend:
        await backend.open(CORE, a_job(), Recorder())
        assert backend.template_pid == pid
        assert backend.marker == started.marker
        started.abandon()  # it is somebody else's now
        assert process_tree.is_alive(pid)
    assert marked(started.marker) == []


async def test_one_that_has_died_before_it_was_taken_is_replaced() -> None:
    started = start_template()
    process_tree.kill(started.pid, signal.SIGKILL)
    async with open_process_backend(started) as backend:
        with pytest.raises(ComputeError, match="SIGKILL"):
            await backend.open(CORE, a_job(), Recorder())
        await backend.open(CORE, a_job(), Recorder())
        assert backend.template_pid not in {0, started.pid}


async def test_one_that_nobody_wants_stays_the_callers() -> None:
    started = start_template()
    async with open_process_backend(started):
        await trio.lowlevel.checkpoint()
    assert process_tree.is_alive(started.pid)
    started.abandon()
    assert not process_tree.is_alive(started.pid)


def test_an_executor_that_cannot_start_leaves_none() -> None:
    before = set(process_tree.children(os.getpid()))
    with pytest.raises(PolicyError):
        Executor(policy="no such policy")
    assert set(process_tree.children(os.getpid())) <= before
