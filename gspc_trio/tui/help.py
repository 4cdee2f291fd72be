"""The help page: what each view shows and which keys work."""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.tui.palette import SYMBOLS
from gspc_trio.tui.views.base import View

GENERAL = (
    ("1 … 8", "show a view"),
    ("ctrl+p", "the command palette: all commands by name"),
    ("↑ ↓ pgup pgdn home end", "move; j and k, too"),
    ("enter", "open what the cursor is on"),
    ("/", "filter what is listed; esc ends it"),
    ("[ ]", "choose the job that is looked at; 0 for all"),
    ("space", "hold the picture, or go on"),
    ("t", "light or dark"),
    ("?", "this page"),
    ("q", "quit"),
)
REPLAY = (
    ("space", "pause, or go on"),
    (".", "one record further"),
    ("< >", "half or double the speed"),
    ("( )", "ten seconds back or forth"),
    ("g", "go to a time: 1:30, 90 or 50%"),
)


def help_text(views: Sequence[View], current: View, replay: bool) -> str:
    """Return the page as text, what concerns the current view first."""
    lines = [current.NAME.upper(), "", *_wrapped(current.HELP), ""]
    lines += [f"  {key:<24}{what}" for key, what in _keys_of(current)]
    lines += ["", "EVERYWHERE", ""]
    lines += [f"  {key:<24}{what}" for key, what in GENERAL]
    if replay:
        lines += ["", "REPLAY", "", *(f"  {key:<24}{what}" for key, what in REPLAY)]
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


def _keys_of(view: View) -> list[tuple[str, str]]:
    found = []
    for binding in view.BINDINGS:
        key, description = getattr(binding, "key", ""), getattr(binding, "description", "")
        if getattr(binding, "show", False):
            found.append((_PRETTY.get(key, key), description))
    return found


_PRETTY = {"delete,minus": "delete or -", "plus": "+"}


def _wrapped(text: str, width: int = 72) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
