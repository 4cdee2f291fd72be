"""A graph of a few lines: values over the last seconds, the newest at the right."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from gspc_trio.tui.palette import style
from gspc_trio.tui.text import count

_BLOCKS = " ▁▂▃▄▅▆▇█"


def columns(values: list[float], top: float, height: int) -> list[str]:
    """Return ``height`` lines, one character for each value; at least a trace of what is more than 0.

    >>> columns([0.0, 0.5, 1.0], 1.0, 2)
    ['  █', ' ██']
    """
    lines = []
    levels = [round(min(1.0, value / top) * height * 8) if top > 0 else 0 for value in values]
    levels = [max(1, level) if value > 0 else level for level, value in zip(levels, values, strict=True)]
    for line in range(height - 1, -1, -1):
        lines.append("".join(_BLOCKS[max(0, min(8, level - 8 * line))] for level in levels))
    return lines


class Graph(Widget):
    """A bar for each second.

    Args:
        name: what is shown.
        colour: name of a style.
    """

    DEFAULT_CSS = """
    Graph { height: 5; border: round $panel-lighten-2; border-title-color: $foreground; padding: 0; }
    """

    def __init__(self, title: str, colour: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title, self._colour = title, colour
        self._values: list[float] = []
        self._top = 1.0

    def show(self, values: list[float], top: float | None, now: str) -> None:
        """Show other values.

        Args:
            values: the newest last; as many as fit are seen.
            top: the value of a full bar, None for the largest.
            now: the newest value, for the title.
        """
        width = max(1, self.content_size.width)
        values = values[-width:]
        highest = top if top is not None else max([1.0, *values])
        title = f"{self._title}  {now}"
        if (values, highest) != (self._values, self._top):
            self._values, self._top = values, highest
            self.refresh()
        if self.border_title != title:
            self.border_title = title
            self.border_subtitle = f"of {count(highest)}" if top is not None else f"most {count(highest)}"

    def render_line(self, y: int) -> Strip:
        """Return one line of the graph."""
        width, height = self.content_size.width, self.content_size.height
        dark = bool(self.app.current_theme.dark)
        line = columns(self._values, self._top, height)[y] if y < height else ""
        base = self.rich_style
        return Strip([Segment(line.rjust(width), base + style(self._colour, dark))], width)
