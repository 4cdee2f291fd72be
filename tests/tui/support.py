"""Records of small runs, and a source that tells them, for the tests of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.style import Style
from textual.app import App
from textual.strip import Strip

from gspc_trio.components.coallocation.agents.words import (
    CoJobEntry,
    RequestDetails,
    RequestEntry,
    RequestsShown,
    ShowRequests,
)
from gspc_trio.components.job.messages import GetJobStatus, GetMemory, GetNet, GetTask, MemoryStatus
from gspc_trio.components.monitor.reports import GetIo, IoEvent, IoReport, IoSum
from gspc_trio.components.rm.messages import Blocking, ClassNeed, ClassStatus, GrantHolder
from gspc_trio.components.rts.messages import RegisteredJob, RequestExplanation, RtsStatus
from gspc_trio.components.rts.site_messages import (
    BlockStatus,
    ListSites,
    SiteList,
    SiteStatus,
    ThrottleStatus,
)
from gspc_trio.core.messages import Done
from gspc_trio.core.net import NetStatus
from gspc_trio.core.task import TaskState
from gspc_trio.iml.messages import GetLayerStatus, LayerStatus
from gspc_trio.records.facts import (
    BlockChanged,
    GrantChanged,
    HostLoad,
    JobChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StreamOpened,
    TaskChanged,
    WorkerChanged,
)
from gspc_trio.tui.app import TopApp
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.palette import style
from gspc_trio.tui.source import CannotAsk
from gspc_trio.tui.table import WindowTable

READY, SUBMITTED, RUNNING = TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING
FINISHED, FAILED, CANCELLED = TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED

WALL_S = 1_750_000_000.0
"""Wall-clock time at which streams of tests begin."""


def opened(at_s: float = 0.0) -> StreamOpened:
    return StreamOpened(at_s, WALL_S, "test")


def task(at_s: float, task_id: int, state: TaskState, where: str = "", **more: Any) -> TaskChanged:
    job, name = more.pop("job", "j1"), more.pop("name", "work")
    return TaskChanged(at_s, job, task_id, state, more.pop("attempt", 1), name, where, **more)


def host(rif_id: str, name: str, cores: int, at_s: float = 0.0) -> list[Record]:
    """A host comes up: a node, and its cores."""
    node = f"{rif_id}.node"
    records: list[Record] = [RifChanged(at_s, rif_id, name, "up")]
    records.append(ResourceChanged(at_s, node, "node", "added", name))
    for number in range(cores):
        core = f"{rif_id}.core{number}"
        records.append(ResourceChanged(at_s, core, "core", "added", name, (node,)))
        records.append(WorkerChanged(at_s, core, "idle"))
    return records


def grant(at_s: float, number: int, *resources: str, job: str = "j1", held: bool = True) -> GrantChanged:
    return GrantChanged(at_s, job, (1, number), resources, held)


def rts_stream() -> list[Record]:
    """Two hosts with two cores each; job j1 holds three cores, j2 nothing, j0 is over."""
    return [
        opened(),
        *host("r1", "alpha", 2),
        *host("r2", "beta", 2),
        JobChanged(0.2, "j0", "running", "tidy"),
        JobChanged(0.9, "j0", "finished", "tidy"),
        JobChanged(1.0, "j1", "running", "fit"),
        JobChanged(2.0, "j2", "running", "plot"),
        grant(1.0, 1, "r1.core0"),
        grant(1.0, 2, "r1.core1"),
        grant(1.5, 3, "r2.core0"),
        WorkerChanged(1.0, "r1.core0", "busy", "j1", 4711),
        SiteChanged(0.0, "hpc", "open", "slurm", 4),
        BlockChanged(3.0, "hpc/b1", "hpc", "running", 2, 8, 3600.0, 2, "4711", 3603.0),
        BlockChanged(4.0, "hpc/b2", "hpc", "queued", 1, 4, 600.0, 0, "4712", None, "Priority"),
        SiteChanged(5.0, "lab", "paused", "oar", 20, "somebody has paused it"),
        HostLoad(2.0, "r1", "alpha", 1.9, 2, 0.95, 3 * 2**30, 8 * 2**30),
        HostLoad(2.0, "r2", "beta", 0.5, 2, 0.25, 2**30, 8 * 2**30),
    ]


def job_stream() -> list[Record]:
    """Job j1: of ten tasks four have finished, one has failed, three run, one is queued, one waits."""
    records: list[Record] = [opened(), JobChanged(1.0, "j1", "running", "fit")]
    records += [task(1.0, n, READY, attempt=0) for n in range(1, 11)]
    for n in range(1, 5):
        core = f"r1.core{n % 2}"
        records.append(task(1.0 + n, n, RUNNING, core))
        records.append(task(1.5 + n, n, FINISHED, core, started_s=WALL_S + 1.0 + n, duration_s=0.5))
    records.append(task(6.0, 5, RUNNING, "r2.core0"))
    records.append(
        task(
            6.4,
            5,
            FAILED,
            "r2.core0",
            detail="ValueError: it is wrong",
            started_s=WALL_S + 6.0,
            duration_s=0.4,
        )
    )
    records += [task(7.0, 6, RUNNING, "r1.core0"), task(7.0, 7, RUNNING, "r1.core1")]
    records += [task(7.5, 8, RUNNING, "r2.core0"), task(7.5, 9, SUBMITTED, "r2.core0")]
    return records


JOB = RegisteredJob("j1", "fit", 11, "anna", "", 1.0, 1, 3, 1.0, {"core": 1}, {"core": 3})
OTHER_JOB = RegisteredJob("j2", "plot", 12, "anna", "", 2.0, 2, 0, 0.0, {"node": 2}, {})
CLASSES = {
    "node": ClassStatus(total=2, free=0, held=0, blocked=2),
    "core": ClassStatus(total=4, free=1, held=3, blocked=0),
}
STATUS = RtsStatus("test", 17, (), 12.0, (), {}, CLASSES, {}, (JOB, OTHER_JOB))

SITES = SiteList(
    (
        SiteStatus(
            "hpc", "open", "", "slurm", 4, 2, 4, 3600.0, None,
            (
                BlockStatus("hpc/b1", "running", "", 2, 8, 3600.0, 2, "4711", 3595.0, "ten wait", 3, 6),
                BlockStatus("hpc/b2", "queued", "Priority", 1, 4, 600.0, 0, "4712", None, "one waits"),
            ),
            score=1.25, history=0.4, throttles=(ThrottleStatus("host_job", 2, 3),),
            settings={"provider": "slurm", "slots": "4"},
        ),
        SiteStatus(
            "lab", "paused", "somebody has paused it", "oar", 20, 1, 1, 3600.0, None, (),
            score=0.01, history=-7.0, ban="banned for 13 s: 14 losses",
        ),
    )
)  # fmt: skip

_CALLS = {
    "file_read_ns": 40_000_000, "file_read_files": 12, "file_read_consecutive": 200, "file_read_forward": 300,
    "file_read_random": 500, "file_read_to_100": 990, "file_read_to_1MiB": 10, "file_write_ns": 9_000,
    "file_write_consecutive": 2, "file_write_to_10KiB": 2, "file_write_files": 1,
}  # fmt: skip

IO = IoReport(
    int(WALL_S) - 600, 5,
    tuple((20 * n, n, 4096 * n, 1024 * n, 1024 * n, 0) for n in range(118)) + ((0,) * 6,) * 2,
    (
        IoSum(
            ("j1",), {"read_calls": 1200, "read_bytes": 1 << 26, "storage_read_bytes": 1 << 25, **_CALLS},
            tuple(4096 * (n % 9) for n in range(120)), (990, 0, 0, 10, 0, 0, 0), (2, 0, 0, 0, 0, 0, 0),
        ),
        IoSum(
            ("j2",), {"write_calls": 7, "write_bytes": 70_000}, (0,) * 119 + (70_000,), (0,) * 7, (0,) * 7
        ),
    ),
    3,
    (
        IoEvent(WALL_S + 1.0, "user", "alpha", "j1", 7, "half way"),
        IoEvent(WALL_S + 2.0, "swapping", "beta", "", 0, "1,000 pages"),
    ),
)  # fmt: skip

EXPLANATION = RequestExplanation(
    shape="node",
    credit=2,
    since_s=2.0,
    needs={"node": ClassNeed(needed=1, total=2, free=0)},
    held_by=(GrantHolder("j1", (1, 1), ("r1.core0",)),),
    place=1,
    patient_until_s=None,
    blocking=Blocking("r1.node", relative="r1.core0", job="j1", grant=(1, 1)),
    reason="0 of 2 node free; r1.node is blocked by r1.core0, held by j1",
    awaits=(),
    waited_s=7.0,
    patience_left_s=None,
)


def fold(model: Model, source: str, records: Iterable[Record]) -> Model:
    for record in records:
        model.apply(source, record)
    return model


def small_run() -> Model:
    """The model of the two streams above, nine seconds in."""
    model = Model()
    fold(model, RTS, rts_stream())
    fold(model, "j1", job_stream())
    model.connected.add("j1")
    model.status = STATUS
    model.explanations["j2"] = (EXPLANATION,)
    for second in range(10):
        model.tick(WALL_S + second)
    return model


REQUESTS = RequestsShown(
    "top",
    (
        RequestDetails(
            RequestEntry("top-1", "client 1", "*(*(a))(b)", 3, {"started": 1, "waiting": 2}, False),
            (
                CoJobEntry(1, "a", "started", sites=("left/hot",), stages=(1, 2)),
                CoJobEntry(2, "b", "waiting", waits=(1,), stages=(1,)),
            ),
        ),
    ),
    2,
)
"""What a co-allocation service has."""


class FakeSource:
    """A source that stands still; it notes what it is asked, and answers as told."""

    why_not = ""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.asked: list[tuple[str | None, Any]] = []
        self.answers: dict[type, Any] = {
            GetNet: NetStatus(),
            GetTask: CannotAsk("it is not there any more"),
            GetJobStatus: CannotAsk("it is not there any more"),
            GetLayerStatus: LayerStatus(""),
            GetMemory: MemoryStatus(),
            ListSites: SITES,
            ShowRequests: REQUESTS,
            GetIo: IO,
        }

    def start(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""

    def beat(self, elapsed_s: float) -> None:
        """Nothing."""

    def title(self) -> tuple[str, str]:
        return "test", "good"

    async def ask(self, job: str | None, message: Any) -> Any:
        self.asked.append((job, message))
        answer = self.answers.get(type(message), Done())
        if isinstance(answer, Exception):
            raise answer
        return answer


def styled_page(app: TopApp) -> str:
    """Return what is on the screen, and below it where which of our colours is.

    What Textual draws in its own way is left out, so that another version of it changes nothing: the footer,
    scrollbars, and the colours of its themes but for the cursor and the titles of tables.
    """
    dark = bool(app.current_theme.dark)
    colours = {style(name, dark).color: name for name in ("running", *COLOURS)}
    grounds = {}
    for table in app.view.query(WindowTable):
        for name in ("cursor", "title"):
            grounds[table.get_component_rich_style(f"table--{name}", partial=True).bgcolor] = name
    lines, spans = [], []
    for y, strip in enumerate(app.screen._compositor.render_strips()[:-1]):
        bars = [it.region.right for it in app.view.query(WindowTable) if y in it.region.line_range]
        width = app.size.width
        if any(it.show_vertical_scrollbar for it in app.view.query(WindowTable)) and bars:
            width = max(bars) - 1
        lines.append(strip.crop(0, width).text.rstrip())
        told = [span for span in _spans(strip.crop(0, width), colours, grounds) if span[2]]
        spans += [f"{y:>3}: " + ", ".join(f"{a}-{b} {name}" for a, b, name in told)] if told else []
    return "\n".join([*lines, "-" * 8, *spans])


COLOURS = ("ready", "submitted", "finished", "failed", "warning", "dim")
"""Names of styles with different colours."""


def _spans(
    strip: Strip, colours: Mapping[Any, str], grounds: Mapping[Any, str]
) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and style of what is not blank, neighbours of one style together."""
    x, begin, before = 0, 0, ""
    for segment in strip:
        its = segment.style or Style()
        words = [colours.get(its.color, "") if segment.text.strip() or its.reverse else ""]
        words += [
            "reverse" if its.reverse else "",
            f"on {grounds[its.bgcolor]}" if its.bgcolor in grounds else "",
        ]
        now = " ".join(filter(None, words))
        if now != before:
            yield begin, x, before
            begin, before = x, now
        x += segment.cell_length
    yield begin, x, before


def screen_text(app: App[Any]) -> str:
    """Return what is on the screen, without colours."""
    width, height = app.size
    lines = []
    for strip in app.screen._compositor.render_strips():
        lines.append(strip.text.rstrip())
    assert len(lines) <= height or width
    return "\n".join(lines)
