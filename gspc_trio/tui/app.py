"""The terminal: views over one model, keys, and the loop that draws what has changed."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import ContentSwitcher

from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.records.facts import TaskChanged
from gspc_trio.tui.actions import ACTIONS, Actions
from gspc_trio.tui.details import TaskPage
from gspc_trio.tui.dialogs import Ask, TextPage
from gspc_trio.tui.lines import Keys, Lines
from gspc_trio.tui.model import Model
from gspc_trio.tui.palette import SYMBOLS, style
from gspc_trio.tui.replay import ReplaySource
from gspc_trio.tui.source import CannotAsk, Source
from gspc_trio.tui.text import one_line, printable
from gspc_trio.tui.views.base import View
from gspc_trio.tui.views.io import Io
from gspc_trio.tui.views.logview import Log
from gspc_trio.tui.views.memory import Memory
from gspc_trio.tui.views.overview import Overview
from gspc_trio.tui.views.queues import Queues
from gspc_trio.tui.views.requests import Requests
from gspc_trio.tui.views.resources import Resources
from gspc_trio.tui.views.sites import Sites
from gspc_trio.tui.views.study import Study
from gspc_trio.tui.views.tasks import Tasks
from gspc_trio.tui.views.workers import Workers
from gspc_trio.tui.views.workflow import WorkflowView

BEAT_S = 0.2
"""Seconds between two looks at what has changed."""

REST_FACTOR = 8
"""After drawing, no drawing for so many times as long: keys are answered, and others have the cores."""

VIEWS: tuple[type[View], ...] = (
    Overview, Resources, Queues, Tasks, Workers, WorkflowView, Memory, Log, Io, Sites, Requests, Study,
)  # fmt: skip

STUDY_VIEWS: tuple[type[View], ...] = (Study, Log)
_KINDS = {kind.NAME: kind for kind in VIEWS}
"""What is worth looking at of a study."""

TABS_WIDTH = sum(len(kind.NAME) + 3 for kind in VIEWS if kind is not Study)
"""Cells that the names of all views take with a blank behind their keys."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""

LEAVE_S = 1.0
"""How long a terminal without an owner may take to leave in good order."""

SUSPEND = ("ctrl+z", "suspend; fg comes back")
HELP_KEYS = (
    ("1 … 9 h u", "show a view"),
    ("ctrl+p", "the command palette: all commands by name"),
    ("↑ ↓ pgup pgdn home end", "move; j and k, too"),
    ("enter", "open what the cursor is on"),
    ("/", "filter what is listed; esc ends it"),
    ("[ ]", "choose the job that is looked at; 0 for all"),
    ("space", "hold the picture, or go on"),
    ("t", "light or dark"),
    ("?", "this page"),
    ("q", "quit"),
    SUSPEND,
)
"""Keys of every view, and what they do."""

HELP_REPLAY_KEYS = (
    ("space", "pause, or go on"),
    (".", "one record further"),
    ("< >", "half or double the speed"),
    ("( )", "ten seconds back or forth"),
    ("g", "go to a time: 1:30, 90 or 50%"),
)
"""Keys of a replay."""

Severity = Literal["information", "warning", "error"]


Breakpoints: TypeAlias = list[tuple[int, str]]
"""From so many columns or lines on the application has this class."""


class TopApp(App[None]):
    """``gspc-top``.

    Args:
        source: fills the model.
        read_only: nothing can be changed from here.
        until_job: leave when this job has ended.
        owner: our end of a pipe; leave when its other end is closed.
        of_study: it begins with the view of a study.
        now: the wall clock.
    """

    TITLE: str = "gspc-top"
    CSS_PATH: ClassVar[Path] = Path(__file__).with_name("top.tcss")
    HORIZONTAL_BREAKPOINTS: Breakpoints = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS: Breakpoints = [(0, "-tiny"), (14, "-short"), (22, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(view.KEY, f"view('{view.NAME}')", view.NAME, show=False) for view in VIEWS),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("left_square_bracket", "next_job(-1)", "Job", key_display="[ ]"),
        Binding("right_square_bracket", "next_job(1)", "Job", show=False),
        Binding("0", "all_jobs", "All jobs", show=False),
        Binding("space", "pause", "Hold"),
        Binding("t", "theme", "Theme", show=False),
        Binding("escape", "end_filter", "Back", show=False),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
        Binding("full_stop", "step", "Step", show=False),
        Binding("less_than_sign", "faster(0.5)", "Slower", show=False),
        Binding("greater_than_sign", "faster(2.0)", "Faster", show=False),
        Binding("left_parenthesis", "seek(-10.0)", "Back 10 s", show=False),
        Binding("right_parenthesis", "seek(10.0)", "On 10 s", show=False),
        Binding("g", "go_to", "Go to", show=False),
    ]

    def __init__(
        self,
        source: Source,
        *,
        read_only: bool = False,
        until_job: JobId | None = None,
        owner: int | None = None,
        of_study: bool = False,
        theme: str = "textual-dark",
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.source = source
        self.job: JobId | None = None
        self.held_still: bool = False
        self.trouble: BaseException | None = None
        self.actions_of_owner: Actions = Actions(self)
        self._read_only = read_only
        self._until_job = until_job
        self._owner = owner
        self._of_study = of_study
        self._now = now
        self._theme_wanted = theme
        self._drawn: tuple[object, ...] = ()
        self._beat_at_s = 0.0
        self._drew_at_s = self._drew_for_s = 0.0
        self.rest_factor = REST_FACTOR

    @property
    def model(self) -> Model:
        """What is shown."""
        return self.source.model

    @property
    def view(self) -> View:
        """The view that is seen."""
        view = self.screen_stack[0].query_one(ContentSwitcher).visible_content
        assert isinstance(view, View)
        return view

    # Life ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Return the first line, the names of the views, the views, the keys."""
        yield Lines(id="head")
        yield Lines(id="tabs")
        first = Study if self._of_study else VIEWS[0]
        with ContentSwitcher(initial=first.NAME):
            yield first()
        yield Keys()

    def on_mount(self) -> None:
        """Begin to follow the source, and to draw."""
        self.theme = self._theme_wanted
        with suppress(NotImplementedError, ValueError, RuntimeError):  # only in a main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        if self._owner is not None:
            watch_owner(self._owner, partial(asyncio.get_running_loop().call_soon_threadsafe, self.exit))
        self.app_resume_signal.subscribe(self, self._resumed)
        self.source.start()
        self._beat_at_s = self._now()
        self.set_interval(BEAT_S, self.beat)
        self.view.table.focus()
        self.beat()

    def _resumed(self, _: App[object]) -> None:
        """Draw all of it: since this process was suspended, the terminal has shown something else."""
        for screen in self.screen_stack:
            for widget in screen.walk_children(with_self=True):
                widget.refresh()

    async def on_unmount(self) -> None:
        """Leave nothing behind."""
        await self.source.stop()

    def beat(self) -> None:
        """Take in what has come, and draw if something looks different."""
        if not self.is_whole:
            return
        now_s = self._now()
        elapsed_s, self._beat_at_s = max(0.0, now_s - self._beat_at_s), now_s
        if self.held_still and not isinstance(self.source, ReplaySource):
            self._draw_head()
            return
        self.source.beat(elapsed_s)
        model = self.model
        if not isinstance(self.source, ReplaySource):
            model.tick(now_s)
        self._leave_with_job()
        state = (id(model), model.version, int(model.now_s), self.job)
        if state != self._drawn and time.monotonic() - self._drew_at_s >= self.rest_factor * self._drew_for_s:
            self._drawn = state
            self.draw()

    @property
    def is_whole(self) -> bool:
        """Whether everything is there to be drawn; while it is being taken down, parts are missing."""
        if self._closing or self._closed or not self._screen_stack:
            return False
        root = self._screen_stack[0]
        switchers = root.query(ContentSwitcher)
        return bool(root.query("#head")) and any(
            view.id == switcher.current for switcher in switchers for view in switcher.children
        )

    def draw(self) -> None:
        """Draw everything that is seen."""
        if not self.is_whole:
            return
        begun_s = time.monotonic()
        self._draw_head()
        self.view.draw()
        self._drew_at_s = time.monotonic()
        self._drew_for_s = self._drew_at_s - begun_s

    def _leave_with_job(self) -> None:
        job = self._until_job
        if job is not None and (self.model.link or self.model.job(job).state != "running"):
            self.exit()

    def action_interrupt(self) -> None:
        """Leave as one who was interrupted: whoever started this terminal may have to end, too."""
        self.exit(return_code=INTERRUPTED)

    def crashed(self, error: BaseException) -> None:
        """The source has failed: leave, and let the command say why."""
        self.trouble = error
        self.exit(return_code=1)

    # The first lines ----------------------------------------------------------------------------------------

    def _draw_head(self) -> None:
        model, dark = self.model, bool(self.current_theme.dark)
        what, colour = self.source.title()
        if self.held_still and not isinstance(self.source, ReplaySource):
            what, colour = "held: space goes on", "warning"
        text = Text()
        text.append(" gspc-top ", style("title", dark))
        if self._of_study:
            text.append(f" {', '.join(model.rts.studies) or 'no study yet'} ", style("bold", dark))
        else:
            hosts, total = len(model.rts.rifs) or len(model.hierarchy.hosts), model.hierarchy.leaf_total
            text.append(f" {hosts} host{'' if hosts == 1 else 's'}  {model.cores_in_use}/{total} in use  ")
            name = "all jobs" if self.job is None else f"{self.job} {one_line(model.job(self.job).name)}"
            text.append(f" {name} ", style("bold", dark))
        text.append(f"  {what}", style(colour, dark))
        root = self.screen_stack[0]
        root.query_one("#head", Lines).show(text)
        tabs, gap = Text(), " " if self.size.width >= TABS_WIDTH else ""
        for kind in STUDY_VIEWS if self._of_study else VIEWS:
            if kind is Study and not self._of_study and not model.rts.studies:
                continue
            is_current = kind.NAME == self.view.NAME
            tabs.append(
                f" {kind.KEY}{gap}{kind.NAME.title()}", "reverse" if is_current else style("dim", dark)
            )
        root.query_one("#tabs", Lines).show(tabs)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Show a message for a while."""
        self.notify(printable(text), severity=severity, timeout=6, markup=False)

    # Views and jobs -----------------------------------------------------------------------------------------

    async def show_view(self, name: str) -> None:
        """Show another view; one that is looked at for the first time is made."""
        switcher = self.query_one(ContentSwitcher)
        if all(view.id != name for view in switcher.children):
            await switcher.add_content(_KINDS[name]())
        if switcher.current != name:
            switcher.current = name
            self.view.entered()
        self.view.table.focus()
        self.draw()

    def choose_job(self, job: JobId | None) -> None:
        """Look at one job, or (None) at all."""
        self.job = job
        self.draw()

    async def action_view(self, name: str) -> None:
        """Show a view."""
        await self.show_view(name)

    def action_next_job(self, by: int) -> None:
        """Look at the next job; after the last one at all."""
        jobs: list[JobId | None] = [None, *(it.job for it in self.model.jobs())]
        at = jobs.index(self.job) if self.job in jobs else 0
        self.choose_job(jobs[(at + by) % len(jobs)])

    def action_all_jobs(self) -> None:
        """Look at all jobs."""
        self.choose_job(None)

    def action_filter(self) -> None:
        """Filter what is listed."""
        self.view.open_filter()

    def action_end_filter(self) -> None:
        """End the filter."""
        self.view.close_filter()

    def action_theme(self) -> None:
        """Change between light and dark."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
        self.call_after_refresh(self.draw)

    def action_help(self) -> None:
        """Show the help."""
        replay = isinstance(self.source, ReplaySource)
        text = help_text(VIEWS, self.view, replay, self.why_not, in_browser=self.is_web)
        self.push_screen(TextPage("help", text))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return what the command palette offers."""
        del screen
        for kind in VIEWS:
            name = kind.NAME
            yield SystemCommand(f"Show {name}", kind.HELP, partial(self.show_view, name))
        yield SystemCommand("Light or dark", "Change the colours", self.action_theme)
        yield SystemCommand("Help", "Views and keys", self.action_help)
        for action in ACTIONS if self.may_act else ():
            title = action.replace("_", " ").capitalize()
            text = getattr(Actions, action).__doc__ or ""
            yield SystemCommand(title, text, getattr(self, f"action_{action}"))
        yield SystemCommand("Quit", "Leave this terminal; what runs goes on", self.exit)

    # Time ---------------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Hold the picture, or the replay; or go on."""
        if isinstance(self.source, ReplaySource):
            self.source.player.paused = not self.source.player.paused
        else:
            self.held_still = not self.held_still
        self.draw()

    def action_step(self) -> None:
        """Replay one record."""
        if isinstance(self.source, ReplaySource):
            self.source.player.step()
            self.draw()

    def action_faster(self, factor: float) -> None:
        """Replay faster or slower."""
        if isinstance(self.source, ReplaySource):
            self.source.player.faster(factor)
            self.draw()

    def action_seek(self, by_s: float) -> None:
        """Go back or forth in a replay."""
        if isinstance(self.source, ReplaySource):
            self.source.player.seek(self.source.player.position_s + by_s)
            self.draw()

    def action_go_to(self) -> None:
        """Go to a time of a replay that is asked for."""
        source = self.source
        if not isinstance(source, ReplaySource):
            return

        def go(text: str | None) -> None:
            if text:
                try:
                    source.player.seek_text(text)
                except ValueError as error:
                    self.say(str(error), "error")
                self.draw()

        self.push_screen(Ask("Go to which time?", hint="1:30, 90 or 50%"), go)

    # Questions and actions ----------------------------------------------------------------------------------

    @property
    def why_not(self) -> str:
        """Why nothing can be changed from here, "" if it can."""
        if self._read_only:
            return "this terminal may only look"
        return self.source.why_not

    @property
    def may_act(self) -> bool:
        """Whether something can be changed from here."""
        return not self.why_not

    async def ask_quietly(self, job: JobId | None, message: Question[AnswerT]) -> tuple[AnswerT | None, str]:
        """Return the answer of a source, see :meth:`Source.ask`, or None and why there is none."""
        try:
            return await self.source.ask(job, message), ""
        except CannotAsk as error:
            return None, str(error)

    def show_text(self, title: str, text: str) -> None:
        """Show a text of any length."""
        self.push_screen(TextPage(title, text))

    def show_task(self, task: TaskChanged) -> None:
        """Show everything about a task."""
        self.push_screen(TaskPage(task))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is offered: none that would be refused, its key does nothing."""
        if action in ACTIONS and not self.may_act:
            return False
        return super().check_action(action, parameters)

    def _act(self, action: Callable[[], Coroutine[object, None, None]]) -> None:
        self.run_worker(action(), group="action")

    def action_cancel_task(self) -> None:
        """Cancel the task under the cursor."""
        self._act(self.actions_of_owner.cancel_task)

    def action_retry_task(self) -> None:
        """Give the failed task under the cursor a new attempt."""
        self._act(self.actions_of_owner.retry_task)

    def action_stop_job(self) -> None:
        """Stop the job under the cursor."""
        self._act(self.actions_of_owner.stop_job)

    def action_weigh_job(self) -> None:
        """Change the weight of the job under the cursor."""
        self._act(self.actions_of_owner.weigh_job)

    def action_remove_resource(self) -> None:
        """Remove what the cursor is on."""
        self._act(self.actions_of_owner.remove_resource)

    def action_drain_host(self) -> None:
        """Drain the host under the cursor."""
        self._act(self.actions_of_owner.drain_host)

    def action_add_back(self) -> None:
        """Add back what was removed."""
        self._act(self.actions_of_owner.add_back)


def help_text(
    views: Sequence[type[View]], current: View, replay: bool, why_not: str = "", *, in_browser: bool = False
) -> str:
    """Return the page as text, what concerns the current view first.

    Args:
        views: all of them.
        current: the one that is seen.
        replay: whether a run is replayed.
        why_not: why nothing can be changed from here, "" if it can.
        in_browser: there is no shell to go back to.
    """
    lines = [current.NAME.upper(), "", *_wrapped(current.HELP), ""]
    lines += [f"  {key:<24}{what}" for key, what in _keys_of(current, bool(why_not))]
    if why_not and not replay:
        lines += ["", f"  {why_not}"]
    lines += ["", "EVERYWHERE", ""]
    shown = [(key, what) for key, what in HELP_KEYS if not (in_browser and key == SUSPEND[0])]
    lines += [f"  {key:<24}{what}" for key, what in shown]
    if replay:
        lines += ["", "REPLAY", "", *(f"  {key:<24}{what}" for key, what in HELP_REPLAY_KEYS)]
    lines += ["", "SYMBOLS", ""]
    lines.append(
        "  tasks      " + _symbols("ready", "submitted", "running", "finished", "failed", "cancelled")
    )
    lines.append("  resources  " + _symbols("free", "held", "blocked"))
    lines += ["", "VIEWS", ""]
    for view in views:
        lines += [f"  {view.KEY} {view.NAME}", *(f"      {line}" for line in _wrapped(view.HELP, 66))]
    return "\n".join(lines)


def _symbols(*states: str) -> str:
    return "  ".join(f"{SYMBOLS[state]} {state}" for state in states)


_PRETTY = {"delete,minus": "delete or -", "plus": "+"}


def _keys_of(view: View, only_look: bool) -> list[tuple[str, str]]:
    found = []
    for binding in view.BINDINGS:
        key, description = getattr(binding, "key", ""), getattr(binding, "description", "")
        acts = getattr(binding, "action", "").removeprefix("app.") in ACTIONS
        if getattr(binding, "show", False) and not (acts and only_look):
            found.append((_PRETTY.get(key, key), description))
    return found


def _wrapped(text: str, width: int = 72) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def watch_owner(descriptor: int, leave: Callable[[], object]) -> None:
    """End this process when the other end of a pipe is closed, which whoever has started the terminal holds.

    The kernel closes it however the owner ends, also when it is killed: so no terminal outlives it.

    Args:
        descriptor: our end of the pipe; nothing is read from it.
        leave: called then, in another thread, to begin to leave in good order.
    """
    threading.Thread(target=_watch, args=(descriptor, leave), name="owner", daemon=True).start()


def _watch(descriptor: int, leave: Callable[[], object]) -> None:
    poller = select.poll()
    poller.register(descriptor, 0)  # only that it hangs up is asked for, which is always told
    poller.poll()
    with suppress(RuntimeError):  # its loop is closed already
        leave()
    time.sleep(LEAVE_S)
    os._exit(1)  # what it would say goes to nobody
