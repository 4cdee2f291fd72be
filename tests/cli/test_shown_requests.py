"""COA-4: what gspc-coallocate runs without a service others can ask for meanwhile, as gspc-top does."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gspc_trio.cli.coallocation.services import own_service
from gspc_trio.cli.common import RUN_FILE, SERVICE_FILE
from gspc_trio.components.coallocation.agents.words import ShowRequests
from gspc_trio.tui.live import service_connector

HANG_S = 60.0


async def test_the_service_of_one_request_can_be_asked_and_a_second_one_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with trio.fail_after(HANG_S):
        async with own_service("here", {}) as file, own_service("here", {}) as second:
            assert file is not None
            assert file.name == RUN_FILE
            assert second is None
            connect = service_connector(file.with_name(SERVICE_FILE), file)
            async with connect() as peer:
                shown = await peer.call(ShowRequests(10))
            assert (shown.service, shown.requests) == ("here", ())
    assert not file.exists()
