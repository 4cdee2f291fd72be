"""The terminal in a browser: who is let in, and that something is to be seen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.tui.test_replay_player import run_of, write

pytest.importorskip("textual_serve")

import aiohttp
from aiohttp import WSMsgType, web

from gspc_trio.tui.serve import COOKIE, TopServer, top_command

HANG_S = 60.0


@contextlib.asynccontextmanager
async def served(command: list[str]) -> AsyncIterator[tuple[TopServer, aiohttp.ClientSession]]:
    server = TopServer(command)
    runner = web.AppRunner(await server.make_app())
    await runner.setup()
    await web.SockSite(runner, server._socket).start()
    jar = aiohttp.CookieJar(unsafe=True)
    async with asyncio.timeout(HANG_S), aiohttp.ClientSession(cookie_jar=jar) as client:
        try:
            yield server, client
        finally:
            await runner.cleanup()
            server.close()


def test_only_the_first_who_has_the_token_is_let_in() -> None:
    async def main() -> None:
        async with served(["true"]) as (server, client):
            base = server.public_url
            assert base.startswith("http://127.0.0.1:")
            for path in ("/", "/ws", "/static/js/textual.js", "/?token=guess", "/?token="):
                assert (await client.get(base + path)).status == 403
            welcome = await client.get(server.address)
            assert welcome.status == 200
            assert str(welcome.url) == base + "/"
            assert "gspc-top" in await welcome.text()
            assert "default-src 'self'" in welcome.headers["Content-Security-Policy"]
            assert (await client.get(base + "/static/js/textual.js")).status == 200
            async with aiohttp.ClientSession() as other:
                refused = await other.get(server.address)
                assert refused.status == 403
                assert "used already" in await refused.text()
                cookies = {COOKIE: "guess"}
                assert (await other.get(base + "/", cookies=cookies)).status == 403

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}], ids=str
)
def test_other_names_and_other_pages_are_refused(headers: dict[str, str]) -> None:
    async def main() -> None:
        async with served(["true"]) as (server, client):
            assert (await client.get(server.address, headers=headers)).status == 403
            assert (await client.get(server.address)).status == 200

    asyncio.run(main())


@pytest.mark.process
def test_the_browser_gets_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "run.records", run_of(30))

    async def main() -> None:
        command = top_command(["--replay", str(path), "--read-only"])
        before = set(psutil.Process().children())  # of other tests, like the standard library's tracker
        async with served(command) as (server, client):
            assert (await client.get(server.address)).status == 200
            async with client.ws_connect(server.public_url + "/ws?width=80&height=24") as socket:
                seen = b""
                while b"replay" not in seen:
                    message = await socket.receive()
                    assert message.type in (WSMsgType.BINARY, WSMsgType.TEXT), message
                    seen += message.data if isinstance(message.data, bytes) else message.data.encode()
            while set(psutil.Process().children()) - before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)

    asyncio.run(main())
