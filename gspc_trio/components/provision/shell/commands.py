"""Commands of batch systems; and the directories of sites, which a batch job removes."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import trio

from gspc_trio.components.provision.batch import BadRequest, BatchRequest, Command, CommandResult, Provider
from gspc_trio.components.provision.staging import REMOVAL_TIME_S, removal_script

log: logging.Logger = logging.getLogger(__name__)

COMMAND_TIMEOUT_S = 60.0
"""A command of the batch system that takes longer is killed; what it has done is unclear."""

QUEUE_S = 20.0
"""How long the batch system may take to queue the job that removes the directory of a site."""


async def _kill_group(process: trio.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def run_command(command: Command, stdin: str = "") -> CommandResult | None:
    """Run a command to its end, or for so long and return None.

    Cancelled, or when it takes too long, it is killed with its process group, so that nobody waits for it.

    Raises:
        OSError: it cannot be started.
    """
    with trio.move_on_after(COMMAND_TIMEOUT_S):
        done = await trio.run_process(
            command,
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            deliver_cancel=_kill_group,
            start_new_session=True,
        )
        output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return CommandResult(done.returncode, output, errors)
    log.warning("%s has not ended within %g s", command[0], COMMAND_TIMEOUT_S)
    return None


RunCommand: TypeAlias = Callable[[Command, str], Awaitable[CommandResult | None]]


class SiteDirectories:
    """The directories of sites of one batch system: one for all hosts that share the same parent.

    A host makes it before its first task with files. When the last host has ended, a batch job is queued that
    removes it; nobody waits for that. Hosts that come later have another one.

    Args:
        provider: knows the batch system.
        command: runs a command of it, with what it reads on standard input.
    """

    def __init__(self, provider: Provider, command: RunCommand) -> None:
        self._provider = provider
        self._command = command
        self._held: dict[str, tuple[str, int]] = {}

    @asynccontextmanager
    async def held(self, parent: str, wanted: BatchRequest) -> AsyncIterator[str]:
        """Have a site directory for a host, as long as the block lasts; return its name.

        Args:
            parent: directory that all hosts of the site see.
            wanted: the batch job of the host; the one that removes has the same queue, account and options.
        """
        directory, number = self._held.get(parent, (f"{parent}/site-{secrets.token_hex(6)}", 0))
        self._held[parent] = directory, number + 1
        try:
            yield directory
        finally:
            directory, number = self._held[parent]
            self._held[parent] = directory, number - 1
            if number == 1:
                del self._held[parent]
                with trio.move_on_after(QUEUE_S, shield=True):
                    if await trio.Path(directory).is_dir():
                        await self._remove(directory, wanted)

    async def _remove(self, directory: str, wanted: BatchRequest) -> None:
        folder, name = f"{directory}-removal", f"gspc-remove-{directory.rpartition('-')[2]}"
        script = removal_script(directory, folder)
        try:
            await trio.Path(folder).mkdir(mode=0o700)
            await trio.Path(folder, "script").write_text(script)
            request = BatchRequest(
                name,
                1,
                REMOVAL_TIME_S,
                wanted.queue,
                wanted.account,
                wanted.arguments,
                script=script,
                folder=folder,
                options=wanted.options,
            )
            command = self._provider.submit(request)
            result = await self._command(command, self._provider.submit_input(request))
            if result is not None and self._provider.submitted(result) is not None:
                log.info("%s removes %s", self._provider.name, directory)
                return
            problem = "it did not say whether it has taken the job"
        except (BadRequest, OSError) as error:
            problem = str(error)
        log.warning(
            "%s may not remove the directory %s: %s; look, and remove it by hand",
            self._provider.name,
            directory,
            problem,
        )
