"""The views of memory, of the log, of I/O and of sites, with Textual's pilot."""

from __future__ import annotations

from typing import cast

from textual.pilot import Pilot

from gspc_trio.components.job.messages import GetJobStatus, GetMemory, JobStatus, LocationStatus, MemoryStatus
from gspc_trio.components.monitor.reports import GetIo
from gspc_trio.iml.messages import (
    DataState,
    DataStatus,
    GetLayerStatus,
    LayerStatus,
    PartStatus,
    ServerStatus,
    TransferStatus,
)
from gspc_trio.records.facts import JobChanged
from gspc_trio.tui.app import TopApp
from gspc_trio.tui.model import RTS
from gspc_trio.tui.source import CannotAsk
from tests.tui.screens.test_views import drive, press, text_of, texts_of
from tests.tui.support import FakeSource, fold, screen_text


def test_the_memory_of_hosts_is_shown() -> None:
    text = text_of("7")
    assert "3.0 GiB   8.0 GiB" in text
    assert "38%" in text
    assert "no memory layer" in text


SERVERS = (
    ServerStatus(0, "alpha", "ws://alpha:1", 5 * 2**30, 0, 2**28),
    ServerStatus(1, "beta", "ws://beta:1", 5 * 2**30, 2**30, 0),
)
PARTS = (PartStatus(2**26, ("alpha",), ("beta",)), PartStatus(2**26, ("beta",), ()))
STRIPED = DataStatus("d1", "j1@x", "", 2**27, DataState.READY, ("alpha", "beta"), 2**25, PARTS)
WRITTEN = (PartStatus(2**20, ("beta",), ()),)
UNDER_WAY = DataStatus("d2", "j1@x", "mesh", 2**20, DataState.WRITING, ("beta",), 0, WRITTEN)
COPY = TransferStatus("d1", 1, 2**26, source="beta", host="alpha")
LAYER_STATUS = LayerStatus("i1", SERVERS, (STRIPED, UNDER_WAY), (COPY,))


def test_what_lies_in_a_memory_layer_is_shown_once_and_found() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        assert isinstance(app.source, FakeSource)
        app.source.answers |= {GetMemory: MemoryStatus(LAYER_STATUS), GetLayerStatus: LAYER_STATUS}
        await press(pilot, "7")
        await app.workers.wait_for_complete()
        app.draw()
        await pilot.pause()
        text = screen_text(app)
        assert "2 pieces of data in 1 memory layer" in text
        server, spilling = (line for line in text.splitlines() if " 5.0 GiB" in line)
        assert server.split()[:5] == ["a", "alpha", "memory", "server", "256.0"]
        assert "memory + disk" in spilling
        first, second = [line.split() for line in text.splitlines() if line.strip()[:2] in ("d1", "d2")]
        picture = "AAAAAAbbbbbbAAAAAAbbbbbb"
        assert first == ["d1", "ready", "128.0", "MiB", "j1", picture, "alpha,", "beta"]
        assert second == ["d2", "mesh", "writing", "1.0", "MiB", "j1", "b" * 24, "beta"]
        (copying,) = (line.split() for line in text.splitlines() if "↳" in line)
        assert copying == ["↳", "part", "1", "copying", "64.0", "MiB", "j1", "beta", "→", "alpha"]
        assert "1 transfer under way" in text
        while app.view.table.key != "d1 j1 ready alpha beta":
            await press(pilot, "down")
        await press(pilot, "enter")
        page = screen_text(app)
        assert "               0        33554432  alpha, beta (cached)" in page
        assert "       100663296        33554432  beta" in page
        await press(pilot, "escape", "slash", *"writing")
        assert "d1" not in screen_text(app)

    drive(steps, size=(130, 30))


def test_the_log_can_be_filtered_by_level() -> None:
    everything, errors, whole, searched = texts_of(
        ("8",), ("e",), ("end", "enter"), ("escape", "e", "e", "slash", *"wrong")
    )
    assert "3 resources were added: r1.node … r1.core1" in everything
    assert "were added" not in errors
    assert "task 5 (work) failed" in errors
    assert "ValueError: it is wrong" in whole
    assert "were added" not in searched
    assert "task 5 (work) failed" in searched


def test_the_log_follows_until_the_cursor_is_moved() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "8")
        many = [JobChanged(1.0 + n, f"j{n}", "running", "more") for n in range(100, 160)]
        fold(app.model, RTS, many)
        app.beat()
        await pilot.pause()
        assert "j159" in screen_text(app)
        await press(pilot, "home")
        fold(app.model, RTS, [JobChanged(300.0, "j999", "running", "more")])
        app.beat()
        await pilot.pause()
        assert "j999" not in screen_text(app)
        await press(pilot, "f")
        assert "j999" in screen_text(app)

    drive(steps)


def test_enter_shows_all_of_the_site_of_a_block_and_a_filter_finds_it() -> None:
    page, found = texts_of(
        ("h", "down", "down", "enter"), ("escape", "slash", *"4712", "enter"), size=(100, 30)
    )
    assert "score 1.25: history 0.4, 3 tasks on 8 cores" in page
    assert "host_job = 3: 2 now" in page
    assert "hpc/b2: one waits" in page
    assert "Priority" in found
    assert "lab" not in found


LOCATIONS = (
    LocationStatus("here", "j1", "up", "", {"core": 2, "node": 1}, {"core": 2}, 22, 2.5, 0.25, 3.0),
    LocationStatus("there", "j4", "gone", "its process has ended"),
)


def test_the_run_time_systems_of_a_job_on_several_are_shown_and_enter_shows_all_of_one() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        assert isinstance(app.source, FakeSource)
        status = JobStatus("j1", "flow", 7, "running", "", {}, 1.0, LOCATIONS)
        app.source.answers[GetJobStatus] = status
        app.model.connected.add("j1")
        await press(pilot, "h")
        await app.workers.wait_for_complete()
        app.draw()
        await pilot.pause()
        lines = {line.split()[0]: line.split() for line in screen_text(app).splitlines() if line.strip()}
        assert lines["here"][:9] == ["here", "✓", "up", "j1", "2", "core,", "1", "node", "2/2"]
        assert "22 as" in screen_text(app)
        assert lines["there"][:4] == ["there", "·", "gone", "j1"]
        assert "2 run-time systems of 1 job" in screen_text(app)
        await press(pilot, "enter")
        assert "granted: 2 core" in screen_text(app)

    drive(steps)


def test_requests_are_trees_with_what_each_job_waits_for() -> None:
    everything, found = texts_of(("o",), ("slash", *"left"), size=(120, 30))
    for row in (
        "service top   1 request, 1 running, 2 more",
        "C1 stage",
        "C2 stage",
        "1 a",
        "and 1 more job",
    ):
        assert row in everything
    lines = {line.split()[0]: line for line in everything.splitlines() if line.strip()}
    assert "left/hot" in lines["1"]
    assert "waiting" in lines["2"]
    assert "2 b" not in found


def test_what_becomes_of_sites_and_blocks_is_logged_and_worth_an_alert() -> None:
    log, overview = texts_of(("8",), ("1",), size=(120, 40))
    assert "block hpc/b1 (batch job 4711) is running" in log
    assert "site lab is paused: somebody has paused it" in overview


def test_io_is_added_up_by_job_task_or_host_and_says_why_it_is_not_there() -> None:
    jobs, all_of_it, hosts = texts_of(("9",), ("b", "enter"), ("escape", "b"), size=(110, 40))
    assert "by job, of all jobs; 3 more have moved less" in jobs
    assert "reads: 20% consecutive, 30% forward, 50% random; 12 files" in jobs
    assert "user alpha j1 7: half way" in jobs
    assert "file_read_random" in all_of_it
    assert "by host" in hosts

    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        source = cast("FakeSource", app.source)
        await press(pilot, "9", "enter")
        await app.workers.wait_for_complete()
        assert source.asked[-1] == (None, GetIo("task", "j1"))
        source.answers[GetIo] = CannotAsk("this run-time system measures no hosts")
        await press(pilot, "b")
        await app.workers.wait_for_complete()
        app.draw()
        await pilot.pause()
        assert "measures no hosts" in screen_text(app)
        assert source.asked[-1] == (None, GetIo("host", "j1"))

    drive(steps)
