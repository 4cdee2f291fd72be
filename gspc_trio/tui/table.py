"""A table that shows a window of a list of any length; only the lines that are seen are ever made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gspc_trio.tui.palette import style
from gspc_trio.tui.text import one_line

Part: TypeAlias = "tuple[str, str]"
"""A text and the name of its style."""

Cell: TypeAlias = "str | Part | list[Part]"


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: in the first line.
        width: in cells; 0 for its share of what the others leave.
        right: numbers are set to the right.
        room: width of the table from which on the column is shown.
        heat: share of the rest, of several columns without a width.
    """

    title: str
    width: int = 0
    right: bool = False
    room: int = 0
    heat: int = 1


class WindowTable(ScrollView, can_focus=True):
    """Rows of cells under titles, with a cursor that stays on its row while the list changes.

    On the first row it stays there: what matters most is on top.

    Args:
        columns: from left to right.
        empty: what to say when there are no rows.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--title", "table--cursor"}
    DEFAULT_CSS: ClassVar[str] = """
    WindowTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    WindowTable > .table--title { text-style: bold; background: $panel; color: $foreground; }
    WindowTable > .table--cursor { background: $primary-muted; }
    WindowTable:focus > .table--cursor { background: $primary-muted; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "end(0)", "First", show=False),
        Binding("end,G", "end(1)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, table: WindowTable, key: str | None) -> None:
            super().__init__()
            self.table: WindowTable = table
            self.key: str | None = key

        @property
        def control(self) -> WindowTable:
            """The table."""
            return self.table

    class Chosen(Moved):
        """Enter was pressed, or the row of the cursor was clicked."""

    def __init__(self, *columns: Column, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = columns
        self.empty = empty
        self.follow: bool = False
        self.keys: Sequence[str] = ()
        self.cursor: int = 0
        self._cells: Callable[[int], Sequence[Cell]] = lambda _: ()
        self._shown: dict[int, Strip] = {}
        self._widths: list[tuple[int, int]] = []

    @property
    def key(self) -> str | None:
        """The key of the row on which the cursor is, None if there are no rows."""
        return self.keys[self.cursor] if self.cursor < len(self.keys) else None

    def width_of(self, index: int) -> int:
        """Return the width of a column, 0 if it is not shown."""
        return dict(self._widths).get(index, 0)

    def show(self, keys: Sequence[str], cells: Callable[[int], Sequence[Cell]]) -> None:
        """Show other rows; the cursor stays on the row with its key, or on the first one.

        Args:
            keys: one for each row, all different.
            cells: position -> the cells of that row; called for rows that are seen.
        """
        before = self.key
        self._cells, old = cells, self.keys
        self.keys = keys
        if self.follow:
            self.cursor = max(0, len(keys) - 1)
        elif before is not None and self.cursor and (self.cursor >= len(keys) or keys[self.cursor] != before):
            try:
                self.cursor = keys.index(before)
            except ValueError:
                self.cursor = max(0, min(self.cursor, len(keys) - 1))
        if len(old) != len(keys):
            self.virtual_size = Size(self.size.width, len(keys) + 1)
            if self.follow:
                self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)
        self.redraw()
        if self.key != before:
            self.post_message(self.Moved(self, self.key))

    def redraw(self) -> None:
        """Draw again those lines that look different now."""
        shown = self._shown
        self._shown = {}
        for y in range(self.size.height):
            if self.render_line(y) != shown.get(y):
                self.refresh(Region(0, y, self.size.width, 1))

    def move_to(self, position: int) -> None:
        """Put the cursor on a row, and bring it into view."""
        position = max(0, min(position, len(self.keys) - 1))
        self.follow = False
        if position != self.cursor:
            self.cursor = position
            self.post_message(self.Moved(self, self.key))
        self._into_view()
        self.redraw()

    def _into_view(self) -> None:
        top, height = int(self.scroll_offset.y), self.size.height - 1
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True, force=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True, force=True)

    # Drawing ------------------------------------------------------------------------------------------------

    def on_resize(self, _: Resize) -> None:
        """Spread the columns over the new width."""
        self.virtual_size: Size = Size(self.size.width, len(self.keys) + 1)
        self._shown = {}
        self._widths = spread(self.columns, self.size.width)
        self._into_view()
        self.refresh()

    def notify_style_update(self) -> None:
        """Colours have changed: nothing that was drawn is of use."""
        super().notify_style_update()
        self._shown = {}

    def render_line(self, y: int) -> Strip:
        """Return one line of the window."""
        known = self._shown.get(y)
        if known is None:
            known = self._shown[y] = self._make_line(y)
        return known

    def _make_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y == 0:
            title = base + self.get_component_rich_style("table--title", partial=True)
            return self._strip([column.title for column in self.columns], title, width)
        position = int(self.scroll_offset.y) + y - 1
        if position >= len(self.keys):
            text = f" {self.empty}" if y == 1 and not self.keys else ""
            return Strip([Segment(set_cell_size(text, width), base + style("dim", self.is_dark))], width)
        if position == self.cursor:
            base += self.get_component_rich_style("table--cursor", partial=True)
        return self._strip(self._cells(position), base, width)

    @property
    def is_dark(self) -> bool:
        """Whether the colours are those for a dark background."""
        return bool(self.app.current_theme.dark)

    def _strip(self, cells: Sequence[Cell], base: Style, width: int) -> Strip:
        segments: list[Segment] = []
        used, dark = 0, self.is_dark
        for index, column_width in self._widths:
            cell = cells[index] if index < len(cells) else ""
            parts = cell if isinstance(cell, list) else [(cell, "") if isinstance(cell, str) else cell]
            if not all(text.isprintable() for text, _ in parts):
                parts = [(one_line(text), name) for text, name in parts]
            length = sum(cell_len(text) for text, _ in parts)
            if self.columns[index].right and length < column_width:
                segments.append(Segment(" " * (column_width - length), base))
                length = column_width
            room = column_width
            for text, name in parts:
                if room <= 0:
                    break
                there = cell_len(text)
                if there > room:
                    text, there = set_cell_size(text, max(0, room - 1)) + "…", room
                segments.append(Segment(text, base + style(name, dark) if name else base))
                room -= there
            pad = max(0, column_width - max(length, column_width - room))
            segments.append(Segment(" " * (pad + 1), base))
            used += column_width + 1
        if used < width:
            segments.append(Segment(" " * (width - used), base))
        return Strip(segments).crop(0, width)

    # Keys ---------------------------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are in the window now."""
        super().watch_scroll_y(old_value, new_value)
        self._shown = {}
        self.refresh()

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by what is in the window."""
        self.move_to(self.cursor + by * max(1, self.size.height - 2))

    def action_end(self, last: int) -> None:
        """Go to the first or last row; from there on the last one is followed if new ones come."""
        self.move_to(len(self.keys) - 1 if last else 0)

    def action_choose(self) -> None:
        """Tell that the row is chosen."""
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: Click) -> None:
        """Put the cursor on the row; on a second click choose it."""
        position = int(self.scroll_offset.y) + event.y - 1
        if event.y == 0 or position >= len(self.keys):
            return
        if position == self.cursor and event.chain > 1:
            self.action_choose()
        else:
            self.move_to(position)


def spread(columns: Sequence[Column], width: int) -> list[tuple[int, int]]:
    """Return index and width of those columns that are shown in a table of this width."""
    shown = [(index, column) for index, column in enumerate(columns) if width >= column.room]
    rest = width - sum(column.width + 1 for _, column in shown)
    shares = sum(column.heat for _, column in shown if not column.width)
    widths = []
    for index, column in shown:
        own = column.width or max(4, rest * column.heat // max(1, shares))
        widths.append((index, own))
    return widths
