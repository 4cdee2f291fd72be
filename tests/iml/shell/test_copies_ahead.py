"""Copies of data that are made before anybody asks for them."""

from __future__ import annotations

import trio

from gspc_trio.iml.layout import Layout
from gspc_trio.iml.shell.client import CopiesAhead
from gspc_trio.nursery.scopes.scope import open_scope
from tests.iml.shell.support import open_stage

NORTH = Layout(("north",))


async def test_what_is_wanted_is_copied_and_what_is_not_there_holds_nothing_up() -> None:
    async with open_stage("north", "south") as stage, stage.client() as iml, open_scope() as nursery:
        first, second, third = [await iml.alloc(4, b"data", layout=NORTH) for _ in range(3)]
        ahead = CopiesAhead(iml)
        ahead.want("south", [first.data_id], lambda: False)
        ahead.want("nowhere", [first.data_id], lambda: True)
        ahead.want("south", ["unknown", second.data_id], lambda: True)
        nursery.start_soon(ahead.run)
        await trio.testing.wait_all_tasks_blocked()
        ahead.want("south", [third.data_id], lambda: True)
        for data, hosts in ((first, ("north",)), (second, ("north", "south")), (third, ("north", "south"))):
            with trio.fail_after(60):
                while (await iml.replicate(data)) != hosts:
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
