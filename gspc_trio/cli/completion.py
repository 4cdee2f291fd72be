"""Completion of words in shells: what can be completed from a running system, such as ids of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from gspc_trio.cli.common import running_connection

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from gspc_trio.components.rts.shell.client import RunTimeSystem

ANSWER_S = 2.0
"""How long a run-time system may take to tell: somebody waits at a prompt."""

Words = dict[str, str]
"""Word -> what it stands for, for people."""


def jobs(context: CompletionContext) -> Words:
    """Return the ids of the jobs that run, and of those that are over."""

    async def ask(system: RunTimeSystem) -> Words:
        running = {it.job: it.name for it in await system.jobs()}
        return running | {it.job: f"{it.name} ({it.state})" for it in await system.ended_jobs()}

    return _told(context, ask)


def rifs(context: CompletionContext) -> Words:
    """Return the ids of the RIFs."""

    async def ask(system: RunTimeSystem) -> Words:
        return {it.rif_id: f"{it.host} ({it.state})" for it in (await system.status()).rifs}

    return _told(context, ask)


def _told(context: CompletionContext, ask: Callable[[RunTimeSystem], Awaitable[Words]]) -> Words:
    """Return what a running system answers; nothing if there is none, or if it is slow."""
    from gspc_trio.components.rts.shell.client import join_rts

    async def joined() -> Words:
        with trio.move_on_after(ANSWER_S):
            typed = context.get("rts") or context.get("connection_file")
            path = Path(typed.raw) if typed is not None and typed.raw else None
            async with join_rts(running_connection(path)) as system:
                return await ask(system)
        return {}

    with suppress(Exception):
        return trio.run(joined)
    return {}
