"""Grants that are handed on among the calls of one client."""

from __future__ import annotations

import trio
import trio.testing

from gspc_trio import open_resources, open_rts
from gspc_trio.components.rts.shell.acquire import HeldGrant, Resources
from gspc_trio.core.task import Requirement, Shape

ONE, TWO = Shape((Requirement("core"),)), Shape((Requirement("core"), Requirement("core")))


async def test_a_grant_goes_to_who_has_waited_longest_but_not_past_another_shape():
    got: list[tuple[str, HeldGrant]] = []

    async def wait(resources: Resources, name: str, *classes: str) -> None:
        got.append((name, await resources.acquire(*classes)))

    with trio.fail_after(30):
        async with open_rts(cores=2) as rts, open_resources(rts) as resources:
            first, second = await resources.acquire("core"), await resources.acquire("core")
            assert not resources.is_waiting
            assert not resources.hand_on(first, ONE)
            async with trio.open_nursery() as nursery:
                for name, classes in (("a", ["core"]), ("both", ["core", "core"]), ("b", ["core"])):
                    nursery.start_soon(wait, resources, name, *classes)
                    await trio.testing.wait_all_tasks_blocked()
                assert not resources.hand_on(second, TWO)
                assert resources.hand_on(first, ONE)
                await trio.testing.wait_all_tasks_blocked()
                assert got == [("a", first)]
                assert not resources.hand_on(first, ONE)  # "both" has waited longer than "b"
                resources.release(first, second)
                while len(got) < 2:
                    await trio.testing.wait_all_tasks_blocked()
                resources.release(got[1][1])
            assert sorted(name for name, _ in got) == ["a", "b", "both"]
            resources.release(got[2][1])
            assert len((await resources.acquire("core", "core")).resources) == 2
