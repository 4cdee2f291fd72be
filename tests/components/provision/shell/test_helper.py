"""A process that answers the commands of one program: started once, ended with what it serves."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from gspc_trio.components.provision.batch import Command, CommandResult
from gspc_trio.components.provision.shell.helper import HelperHost
from tests.processes import is_alive
from tests.support import until

PROGRAM = """
import json, os, socket, sys, time
if sys.argv[1] != "serve":
    sys.exit("a process of its own")
with socket.socket(fileno=int(sys.argv[2])) as link:
    for line in link.makefile():
        arguments, stdin = json.loads(line)
        if arguments == ["die"]:
            sys.exit("the last word")
        if arguments == ["hang"]:
            time.sleep(60)
        print("noise", flush=True)
        link.sendall(json.dumps([0, f"{os.getpid()} {' '.join(arguments)} {stdin}", ""]).encode() + b"\\n")
"""


@pytest.fixture
def program(tmp_path: Path) -> Command:
    path = tmp_path / "program.py"
    path.write_text("import os; os.dup2(1, 2)\n" + PROGRAM)
    return (sys.executable, "-S", str(path))


@asynccontextmanager
async def open_host(program: Command, **times: float) -> AsyncIterator[HelperHost]:
    async with trio.open_nursery() as nursery:
        host = HelperHost(program, **times)
        host.begin(nursery.start_soon)
        yield host
        nursery.cancel_scope.cancel()


def said(result: CommandResult | None) -> tuple[int, str]:
    assert result is not None
    pid, _, text = result.output.partition(" ")
    return int(pid), text


async def test_one_process_answers_what_begins_with_its_program(program: Command):
    async with open_host(program) as host:
        pid, text = said(await host.command((*program, "list", "x"), "told"))
        assert text == "list x told"
        found: list[tuple[int, str]] = []

        async def ask(number: int) -> None:
            found.append(said(await host.command((*program, str(number)))))

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(ask, number)
        assert sorted(found) == [(pid, f"{number} ") for number in range(5)]
        other = await host.command(("echo", "other"))
        assert other == CommandResult(0, "other\n", "")
    assert not is_alive(pid)


async def test_a_helper_that_has_ended_says_why_and_there_is_another_one(program: Command):
    async with open_host(program) as host:
        assert await host.command((*program, "die")) == CommandResult(1, "", "the last word")
        assert said(await host.command((*program, "list")))[1] == "list "


async def test_a_helper_that_does_not_answer_is_killed(program: Command):
    async with open_host(program, answer_s=0.3) as host:
        with trio.fail_after(30):
            assert await host.command((*program, "hang")) is None


async def test_those_who_use_it_may_outlast_what_it_was_started_in(program: Command):
    host = HelperHost(program, idle_s=math.inf)
    is_over = trio.Event()

    async def use() -> None:
        with host.in_use(), trio.CancelScope(shield=True):
            pid, _ = said(await host.command((*program, "first")))
            is_over.set()
            assert said(await host.command((*program, "last")))[0] == pid
            os.kill(pid, 9)
            await host.command((*program, "lost"))
            assert said(await host.command((*program, "again")))[0] != pid

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host.begin(nursery.start_soon)
            nursery.start_soon(use)
            await is_over.wait()
            nursery.cancel_scope.cancel()


async def test_a_helper_that_nobody_asks_ends(program: Command):
    async with open_host(program, idle_s=0.05) as host:
        pid, _ = said(await host.command((*program, "list")))
        await until(lambda: not is_alive(pid))
        assert said(await host.command((*program, "list")))[0] != pid


async def test_what_cannot_be_started_is_said(tmp_path: Path):
    program = (str(tmp_path / "nothing"),)
    async with open_host(program) as host:
        with pytest.raises(OSError, match="nothing"):
            await host.command((*program, "list"))
