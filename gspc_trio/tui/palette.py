"""Colours and symbols: the same thing looks the same in every view, and is told by more than its colour.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; for a
light background they are darkened.
"""

from __future__ import annotations

from functools import cache

from rich.style import Style

from gspc_trio.core.task import TaskState
from gspc_trio.tui.hierarchy import Use
from gspc_trio.tui.news import Level

SYMBOLS: dict[str, str] = {
    TaskState.READY.value: "○",
    TaskState.SUBMITTED.value: "◌",
    TaskState.RUNNING.value: "▶",
    TaskState.FINISHED.value: "✓",
    TaskState.FAILED.value: "✗",
    TaskState.CANCELLED.value: "⊘",
    "stopped": "⊘",
    "started": "▶",
    "not run": "⊘",
    Use.FREE.value: "·",
    Use.HELD.value: "■",
    Use.BLOCKED.value: "▒",
    "up": "✓",
    "starting": "○",
    "away": "◌",
    "quarantined": "◌",
    "lost": "✗",
    "down": "⊘",
    "stopping": "⊘",
    "idle": "·",
    "busy": "▶",
    "open": "✓",
    "waiting": "◌",
    "paused": "!",
    "wanted": "○",
    "queued": "○",
    "held": "■",
    "suspended": "⊘",
    "ending": "⊘",
    "postponed": "·",
    "completed": "✓",
    "not submitted": "✗",
    "abandoned": "⊘",
    "cancelling": "⊘",
    "gone": "·",
}
"""A symbol of one cell for each state of a task, a job, a resource, a RIF or a worker."""

LEVEL_SYMBOLS = {Level.INFO: "·", Level.GOOD: "✓", Level.WARNING: "!", Level.ERROR: "✗"}

_DARK = {
    "blue": "#56b4e9",
    "green": "#2bc79f",
    "orange": "#e69f00",
    "red": "#ff7043",
    "purple": "#d98cb9",
    "yellow": "#f0e442",
    "dim": "#8a8f98",
}
_LIGHT = {
    "blue": "#00629b",
    "green": "#00705a",
    "orange": "#8f5a00",
    "red": "#b03a00",
    "purple": "#8c3f6b",
    "yellow": "#6b6200",
    "dim": "#5f646b",
}

_COLOUR_OF = {
    TaskState.READY.value: "yellow",
    TaskState.SUBMITTED.value: "purple",
    TaskState.RUNNING.value: "blue",
    TaskState.FINISHED.value: "green",
    TaskState.FAILED.value: "red",
    TaskState.CANCELLED.value: "dim",
    "stopped": "orange",
    "started": "blue",
    "not run": "orange",
    Use.FREE.value: "green",
    Use.HELD.value: "blue",
    Use.BLOCKED.value: "orange",
    "up": "green",
    "starting": "yellow",
    "away": "orange",
    "quarantined": "orange",
    "lost": "red",
    "down": "dim",
    "stopping": "orange",
    "idle": "dim",
    "busy": "blue",
    "open": "green",
    "waiting": "orange",
    "paused": "red",
    "wanted": "dim",
    "queued": "yellow",
    "suspended": "orange",
    "ending": "orange",
    "postponed": "dim",
    "completed": "green",
    "not submitted": "red",
    "abandoned": "orange",
    "cancelling": "orange",
    "gone": "dim",
    "serving": "green",
    "submitting": "yellow",
    "awaiting": "yellow",
    "restarting": "orange",
    "dim": "dim",
    "good": "green",
    "warning": "orange",
    "error": "red",
    "info": "dim",
    "title": "blue",
}


@cache
def style(name: str, dark: bool) -> Style:
    """Return the style of a state or another name; plain for one that is not known, bold for ``bold``."""
    if name == "bold":
        return Style(bold=True)
    colour = _COLOUR_OF.get(name)
    if colour is None:
        return Style()
    bold = name in ("failed", "lost", "error", "title")
    return Style(color=(_DARK if dark else _LIGHT)[colour], bold=bold or None)


def state_cell(state: str) -> tuple[str, str]:
    """Return symbol and word of a state, with its style."""
    return f"{SYMBOLS.get(state, '?')} {state}", state


def level_name(level: Level) -> str:
    """Return the name of a level's style."""
    return level.name.lower()
