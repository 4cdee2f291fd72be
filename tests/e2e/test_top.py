"""gspc-top with real processes: one look, a real terminal, a run-time system that goes, and --top."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot

from gspc_trio.cli.top import app as command
from gspc_trio.components.rts.messages import SetWeight
from gspc_trio.tui.app import TopApp
from gspc_trio.tui.live import Follower, LiveSource, connector
from gspc_trio.tui.model import Model
from tests.e2e.support import GATED, HANG_S, SLEEPERS, World, wait_until

pytestmark = pytest.mark.process

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """A terminal of a real terminal program."""

    def __init__(self, world: World, columns: int, lines: int, words: list[str], name: str = "tmux") -> None:
        self._socket = str(world.folder / name)
        self._environment = world.environment
        self.out = world.folder / "exit-status"
        line = f"{shlex.join(words)}; echo $? > {shlex.quote(str(self.out))}; sleep 1000"
        self("-f", "/dev/null", "new", "-d", "-x", str(columns), "-y", str(lines), line)

    def status(self) -> str:
        """Wait for the end of the program and return its exit status."""

        def written() -> str:
            return self.out.read_text().strip() if self.out.exists() else ""

        return str(wait_until(written, "the program has ended"))

    def __call__(self, *arguments: str) -> str:
        """Run a command of tmux and return what it prints."""
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            env=self._environment, capture_output=True, text=True, timeout=HANG_S, check=True,
        )  # fmt: skip
        return done.stdout

    def text(self) -> str:
        """Return what is on the screen."""
        return self("capture-pane", "-p")

    def wait_for(self, text: str) -> str:
        """Wait until a text is on the screen, and return the screen."""
        try:
            shown: str = wait_until(
                lambda: text in (screen := self.text()) and screen, f"{text} on the screen"
            )
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.text()}") from None
        return shown

    def press(self, *keys: str) -> None:
        """Type keys."""
        self("send-keys", *keys)


@pytest.fixture
def terminals(world: World) -> Iterator[list[Tmux]]:
    """Terminals that are closed at the end, before the world is looked at."""
    del world
    opened: list[Tmux] = []
    yield opened
    for terminal in opened:
        terminal("kill-server")


def top(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gspc_trio.cli.top", *arguments]


def start_sleepers(world: World, n: int = 20_000, seconds: float = 0.05) -> subprocess.Popen[str]:
    flow = world.workflow(SLEEPERS)
    settings = ("--set", f"n={n}", "--set", f"seconds={seconds}")
    process = world.start("jobserver", "run", flow, "--rts", world.connection_file, *settings)
    wait_until(lambda: world.held_cores() == 2, "the job has begun")
    return process


def test_one_look_as_text_and_as_json(world: World) -> None:
    world.start_rts("--cores", "2", "--host", "alpha")
    job = start_sleepers(world, 16_000)
    data = wait_until(
        lambda: (it := world.run_json("top", "--once"))["jobs"][0]["tasks"]["finished"] and it, "tasks"
    )
    assert data["cores"] == {"total": 2, "in_use": 2}
    assert [(host["host"], host["state"]) for host in data["hosts"]] == [("alpha", "up")]
    (told,) = data["jobs"]
    assert (told["job"], told["name"], told["state"], told["held"]) == ("j1", "flow", "running", 2)
    assert sum(told["tasks"].values()) == 16_000, "items are counted, not ranges"
    assert "of 2 core free" in told["waiting"][0]["reason"]
    assert len(told["running"]) == 2
    text = world.run("top", "--once").stdout
    assert "2 of 2 cores in use" in text
    assert "alpha" in text
    assert "j1    flow" in text
    os.killpg(job.pid, signal.SIGTERM)
    job.wait(HANG_S)
    world.stop_rts()
    world.wait_nothing_left()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "this is not a terminal: print a snapshot with --once, or --once --json"),
        (("--once",), "there is no connection file"),
        (("--replay", "missing"), "there is no record file missing"),
        (("--replay", __file__, "--once"), "is no record file"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_said_in_one_line(
    world: World, arguments: tuple[str, ...], said: str
) -> None:
    done = world.run("top", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_end_of_a_recorded_run(world: World) -> None:
    flow, records = world.workflow(SLEEPERS), str(world.folder / "run.records")
    done = world.run("jobserver", "run", flow, "--set", "n=50", "--cores", "2", "--records", records)
    assert done.returncode == 0, done.stderr
    told = json.loads(world.run("top", "--replay", records, "--once", "--json").stdout)
    assert told["jobs"][0]["tasks"]["finished"] == 50
    assert told["jobs"][0]["state"] == "finished"
    assert told["cores"]["total"] == 2


@needs_tmux
def test_in_a_real_terminal(world: World, terminals: list[Tmux]) -> None:
    world.start_rts("--cores", "2", "--host", "alpha")
    start_sleepers(world)
    terminals.append(Tmux(world, 80, 24, top()))
    (terminal,) = terminals
    shown = terminal.wait_for("2/2 in use")
    assert "flow" in shown
    assert max(map(len, shown.splitlines())) <= 80
    terminal.press("4")
    assert "▶ running" in terminal.wait_for("sleepers")
    terminal.press("2")
    terminal.wait_for("■ held")
    terminal("resize-window", "-x", "20", "-y", "5")
    terminal.press("1")
    terminal.wait_for("gspc-top")
    terminal("resize-window", "-x", "250", "-y", "70")
    terminal.wait_for("progress")
    world.stop_rts()
    terminal.wait_for("trying again")
    world.start_rts("--cores", "1", "--host", "beta")
    terminal.wait_for("0/1 in use")
    terminal.press("q")
    assert terminal.status() == "0"
    world.stop_rts()


@needs_tmux
def test_it_takes_the_place_of_the_progress_bar(world: World, terminals: list[Tmux]) -> None:
    gate, later = world.folder / "gate", world.folder / "later"
    words = [*top()[:2], "gspc_trio.cli.jobserver", "run", world.workflow(GATED), "--cores", "2", "--top"]
    terminals += [Tmux(world, 80, 24, [*words, "--set", f"gate={gate}"])]
    terminals[0].wait_for("2/2 in use")
    gate.touch()
    assert terminals[0].status() == "0"
    assert "100 tasks in" in terminals[0].text()
    terminals[0]("kill-server")
    terminals.clear()
    words += ["--set", f"gate={later}", "--set", "n=300"]
    terminals += [Tmux(world, 80, 24, words, "tmux2")]  # the first one's server may still be ending
    terminals[0].wait_for("2/2 in use")
    terminals[0].press("q")  # the run goes on, with its progress bar
    assert "━" in terminals[0].wait_for("/300")
    later.touch()
    terminals[0].wait_for("300 tasks in")


@needs_tmux
def test_one_interrupt_ends_the_run_and_its_terminal(world: World, terminals: list[Tmux]) -> None:
    gate = world.folder / "gate"
    words = [*top()[:2], "gspc_trio.cli.jobserver", "run", world.workflow(GATED), "--cores", "2", "--top"]
    terminals += [Tmux(world, 80, 24, [*words, "--set", f"gate={gate}"])]
    (terminal,) = terminals
    terminal.wait_for("2/2 in use")
    terminal.press("/")  # also while a text is being typed
    terminal.press("C-c")
    assert terminal.status() == "130"
    told = "gspc-jobserver: interrupted: 0 tasks had ended, 2 were running, 98 had not begun"
    assert terminal.text().strip() == told, "the rest of the screen is as it was"
    terminal("send-keys", "-l", "echoed")
    terminal.wait_for("echoed")


@needs_tmux
def test_ctrl_z_suspends_it_and_fg_comes_back(world: World, terminals: list[Tmux]) -> None:
    world.start_rts("--cores", "2")
    terminal = Tmux(world, 80, 24, ["bash", "--norc", "--noprofile", "-i"])
    terminals.append(terminal)
    terminal("send-keys", "-l", shlex.join(top("--rts", world.connection_file)))
    terminal.press("Enter")
    terminal.wait_for("Overview")
    terminal.press("C-z")
    assert "Overview" not in terminal.wait_for("Stopped")
    terminal("send-keys", "-l", "fg")
    terminal.press("Enter")
    terminal.wait_for("Overview")
    terminal.press("q")
    wait_until(lambda: "Overview" not in terminal.text(), "the screen is as it was")
    terminal("send-keys", "-l", "exit")
    terminal.press("Enter")
    wait_until(terminal.out.exists, "the shell has ended")
    world.stop_rts()


def test_ctrl_z_suspends_a_run_with_its_terminal(world: World, terminals: list[Tmux]) -> None:
    flow = world.workflow(SLEEPERS)
    terminal = Tmux(world, 80, 24, ["bash", "--norc", "--noprofile", "-i"])
    terminals.append(terminal)
    command = [sys.executable, "-m", "gspc_trio.cli.jobserver", "run", flow, "--cores", "1", "--top"]
    terminal("send-keys", "-l", shlex.join([*command, "--set", "seconds=600"]))
    terminal.press("Enter")
    terminal.wait_for("Overview")
    terminal.press("C-z")
    assert "Overview" not in terminal.wait_for("Stopped")
    terminal("send-keys", "-l", "fg")
    terminal.press("Enter")
    terminal.wait_for("Overview")
    terminal.press("2")  # it reads keys again, once it answers one
    terminal.wait_for("■ held")
    terminal.press("C-c")
    # What is typed before the run has put the terminal back would be lost.
    try:
        wait_until(lambda: terminal.text().rstrip().endswith(("#", "$")), "the shell waits for a command")
    except AssertionError as error:
        raise AssertionError(f"{error}:\n{terminal.text()}") from None
    terminal("send-keys", "-l", "exit")
    terminal.press("Enter")
    wait_until(terminal.out.exists, "the shell has ended")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to end"])
def test_the_page_of_a_server_that_has_gone_is_not_left(world: World, number: signal.Signals) -> None:
    pytest.importorskip("textual_serve", reason="gspc-trio[serve] is not installed")
    import aiohttp

    flow, records = world.workflow(SLEEPERS), str(world.folder / "run.records")
    world.run("jobserver", "run", flow, "--set", "n=5", "--cores", "1", "--records", records)
    server = world.start("top", "--serve", "--replay", records)
    assert server.stdout is not None
    address = server.stdout.readline().split()[1]

    async def main() -> list[psutil.Process]:
        jar = aiohttp.CookieJar(unsafe=True)
        async with asyncio.timeout(HANG_S), aiohttp.ClientSession(cookie_jar=jar) as client:
            await client.get(address)
            path = address.replace("http", "ws").partition("?")[0] + "ws?width=80&height=24"
            async with client.ws_connect(path) as socket:
                shown = b""
                while b"flow" not in shown:
                    message = await socket.receive()
                    shown += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
                viewers = psutil.Process(server.pid).children(recursive=True)
                assert viewers
                server.send_signal(number)
                _, left = await asyncio.to_thread(psutil.wait_procs, viewers, HANG_S)
                return left

    assert not asyncio.run(main())
    server.communicate(timeout=HANG_S)
    world.wait_nothing_left()


def test_trio_is_a_guest_in_the_terminal(world: World) -> None:
    world.start_rts("--cores", "2", "--host", "alpha")
    start_sleepers(world)
    crashes: list[BaseException] = []

    async def until(pilot: Pilot[None], condition: object) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():  # type: ignore[operator]
                await pilot.pause(0.05)

    async def main() -> None:
        follower = Follower(connector(Path(world.connection_file)), Model())
        source = LiveSource(follower, "here", crashes.append)
        shown = TopApp(source)
        async with shown.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: shown.model.connected)
            await source.ask(None, SetWeight("j1", 3.0))
            await until(
                pilot, lambda: shown.model.status is not None and shown.model.status.jobs[0].weight == 3.0
            )
            await pilot.press("x")  # stop the job under the cursor: drain
            await pilot.pause()
            await pilot.press("down", "enter")
            await until(pilot, lambda: shown.model.job("j1").state != "running")
            await until(pilot, lambda: not shown.model.connected)
        assert shown.model.job("j1").state == "stopped"

    asyncio.run(main())
    assert not crashes
    world.stop_rts()


def test_a_crash_in_trio_ends_the_terminal_and_is_told(world: World) -> None:
    del world

    def connect() -> object:
        raise ZeroDivisionError("a defect")

    async def main() -> TopApp:
        shown: list[TopApp] = []
        follower = Follower(connect, Model())  # type: ignore[arg-type]
        source = LiveSource(follower, "here", lambda error: shown[0].crashed(error))
        shown.append(TopApp(source))
        async with shown[0].run_test() as pilot, asyncio.timeout(HANG_S):
            while shown[0].is_running and shown[0].trouble is None:
                await pilot.pause(0.05)
        return shown[0]

    shown = asyncio.run(main())
    assert shown.return_code == 1
    assert "a defect" in repr(shown.trouble)


def test_the_command_tells_its_options() -> None:
    assert command.name == ("gspc-top",)
