"""A real browser: gspc-top --serve shows a run and answers to keys; the site of docs/ is searched."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from tests.docs.test_site import make_site
from tests.e2e.support import HANG_S, SLEEPERS, World, wait_until

pytestmark = pytest.mark.process

BROWSER = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1000,700",
    "--remote-debugging-port=0",
]  # fmt: skip

CATCH_TERMINAL = """
Object.defineProperty(Object.prototype, "terminal", {
    configurable: true,
    set(value) {
        window.shown = value;
        Object.defineProperty(this, "terminal", {value, writable: true});
    },
});
"""
"""Keep the page's terminal emulator, which it assigns to an attribute of this name, where it can be asked."""

READ_TERMINAL = """
(() => {
    const lines = [], buffer = window.shown && window.shown.buffer.active;
    for (let y = 0; buffer && y < buffer.length; y++) lines.push(buffer.getLine(y).translateToString(true));
    return lines.join("\\n");
})()
"""

COUNT_INKED_PIXELS = """
(() => {
    const layer = document.querySelector("canvas.xterm-text-layer");
    const data = layer.getContext("2d").getImageData(0, 0, layer.width, layer.height).data;
    return data.filter((value, index) => index % 4 == 3 && value > 0).length;
})()
"""
"""How much the emulator has drawn, text and coloured backgrounds."""


class Page:
    """A page of the browser, driven by its DevTools protocol."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._session: dict[str, str] = {}

    async def open(self) -> None:
        """Make the page."""
        target = await self("Target.createTarget", url="about:blank")
        attached = await self("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        await self("Page.enable")
        await self("Emulation.setFocusEmulationEnabled", enabled=True)  # as if a person looked at it

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method; return its result."""
        number = next(self._numbers)
        await self._socket.send_message(
            json.dumps({"id": number, "method": method, "params": params, **self._session})
        )
        while True:
            told: dict[str, Any] = json.loads(await self._socket.get_message())
            if told.get("id") == number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        told = await self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def press(self, key: str) -> None:
        """Type a character."""
        await self("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def wait_for(self, *texts: str) -> str:
        """Wait until all the texts are in the terminal, and return what it shows."""
        shown = ""
        with trio.move_on_after(HANG_S):
            while True:
                shown = await self.value(READ_TERMINAL)
                if all(text in shown for text in texts):
                    return shown
                await trio.sleep(0.05)
        raise AssertionError(f"the terminal in the browser does not show {texts}:\n{shown}")


@asynccontextmanager
async def browser_page(world: World) -> AsyncIterator[Page]:
    """Start the browser, with a new profile, and open a page; the browser ends with the block."""
    assert BROWSER is not None
    with TemporaryDirectory() as name:  # a short one: there is a socket in it
        home = Path(name)
        words = [BROWSER, *FLAGS, f"--user-data-dir={home / 'profile'}"]
        # Not into a pipe: it says a lot, and nobody reads it.
        shell = ("sh", "-c", 'exec "$@" >"$0" 2>&1', str(home / "log"), *words)
        process = world.start_program(*shell, env={"HOME": name, "TMPDIR": name})
        told = home / "profile" / "DevToolsActivePort"

        def where() -> list[str] | None:
            assert process.poll() is None, (home / "log").read_text()
            lines = told.read_text().split() if told.exists() else []
            return lines if len(lines) == 2 else None

        port, path = wait_until(where, "the browser is there")
        async with open_websocket_url(f"ws://127.0.0.1:{port}{path}") as socket:
            page = Page(socket)
            await page.open()
            yield page
            await Page(socket)("Browser.close")
        process.wait(HANG_S)


def serve(world: World) -> tuple[str, Callable[[], None]]:
    """Start gspc-top --serve; return its address, and how to end it."""
    process = world.start("top", "--serve")
    assert process.stdout is not None
    said = process.stdout.readline().split()
    assert said[:1] == ["open"], said

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0

    return said[1], end


@pytest.mark.skipif(BROWSER is None, reason="no browser: chromium is not installed")
def test_a_browser_shows_a_run(world: World) -> None:
    pytest.importorskip("textual_serve", reason="gspc-trio[serve] is not installed")
    world.start_rts("--cores", "2", "--host", "alpha")
    flow = world.workflow(SLEEPERS)
    world.start("jobserver", "run", flow, "--rts", world.connection_file, "--set", "n=20000")
    wait_until(lambda: world.held_cores() == 2, "the job has begun")
    address, end = serve(world)

    async def main() -> None:
        async with browser_page(world) as page:
            await page("Page.addScriptToEvaluateOnNewDocument", source=CATCH_TERMINAL)
            await page("Page.navigate", url=address)
            shown = await page.wait_for("2/2 in use", "flow", "running")
            assert "gspc-top" in shown.splitlines()[0]
            await page.wait_for("space Hold")
            with trio.fail_after(HANG_S):  # it gets the keys, without a click
                while not await page.value(HAS_KEYS):  # noqa: ASYNC110 - nothing tells of it
                    await trio.sleep(0.05)
            assert await page.value("document.body.classList.contains('-first-byte')")
            assert await page.value(COUNT_INKED_PIXELS) > 10_000
            assert await page.value("location.search") == ""  # the token is in no address bar
            await page.press("4")
            await page.wait_for("▶ running", "sleepers")
            await page.press("2")
            await page.wait_for("■ held", "alpha")

    with_hang_guard(main)
    end()
    world.stop_rts()
    world.wait_nothing_left()


API = """# Python API

## Executor

### Executor

| argument | type | default | meaning |
|---|---|---|---|
| `a_long_name_of_an_argument` | `a_long_type_of_an_argument` | `a_long_default_of_it` | what it means |

Methods and properties:

- `share(value)`: Return a future.
"""


@pytest.mark.skipif(BROWSER is None, reason="no browser: chromium is not installed")
def test_a_browser_searches_the_site_and_fits_it_on_a_phone(world: World, tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="sphinx is not installed: make site")
    pages = {
        "index.md": "# First\n\n`Executor.share` shares.\n",
        "mutants.md": "# Mutants that share\n",
        "api.md": API,
    }
    pages["README.md"] = "# All\n\n## Reference\n\n[API](api.md), [Mutants](mutants.md)\n"
    made = make_site(tmp_path, {f"docs/{name}": text for name, text in pages.items()})
    assert made.returncode == 0, made.stderr
    assert 'href="api.html#Executor.share"' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    site = (tmp_path / "site").as_uri()

    async def main() -> None:
        async with browser_page(world) as page:
            await page("Page.navigate", url=f"{site}/search.html?q=share")
            while not (found := await page.value(FOUND)):  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.05)
            assert found[0] == [f"{site}/api.html#Executor.share", "gspc_trio.Executor.share"]
            assert [title for _, title in found[1:]] == ["First", "Python API", "Mutants that share"]
            await page(
                "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
            )
            await page("Page.navigate", url=found[0][0])
            while not await page.value(IS_SHOWN):  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.05)
            assert await page.value("document.documentElement.scrollWidth") == 390

    with_hang_guard(main)
    world.wait_nothing_left()


FOUND = """
document.querySelector("#search-results .search-summary")?.textContent.includes("found") &&
[...document.querySelectorAll("#search-results li > a")].map(
    one => [one.href.replace(/\\?[^#]*/, ""), one.textContent])
"""
"""Addresses and titles, once the search is over."""

IS_SHOWN = "document.readyState == 'complete' && document.title.startsWith('Python API')"

HAS_KEYS = "document.activeElement.classList.contains('xterm-helper-textarea')"


def with_hang_guard(main: Callable[[], Awaitable[None]]) -> None:
    """Run a trio function that fails when it hangs."""

    async def guarded() -> None:
        with trio.fail_after(3 * HANG_S):
            await main()

    trio.run(guarded)
