"""Lines of text: drawn again only when they have changed, laid out anew only when there are more of them."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.events import Click
from textual.screen import Screen
from textual.widget import Widget

from gspc_trio.tui.palette import style


class Lines(Widget):
    """As many lines as its text has; each is cut where the room ends."""

    DEFAULT_CSS: ClassVar[str] = "Lines { height: 1; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = Text()
        self._number = 1
        self._was_told = False

    def show(self, text: Text | str) -> None:
        """Show another text."""
        text = Text(text) if isinstance(text, str) else text
        if self._was_told and text == self._text and text.spans == self._text.spans:
            return
        self._was_told = True
        text.no_wrap, text.overflow = True, "ellipsis"
        self._text = text
        number = text.plain.count("\n") + 1 if text.plain else 0
        if number != self._number:
            self._number = self.styles.height = number
        self.refresh()

    def render(self) -> Text:
        """Return the text."""
        return self._text


class Keys(Widget):
    """The last line: the keys that work here, each of which can be clicked."""

    DEFAULT_CSS: ClassVar[str] = "Keys { dock: bottom; height: 1; background: $panel; color: $foreground; }"

    def __init__(self) -> None:
        super().__init__()
        self._places: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Look again whenever other keys work."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, _: Screen[object]) -> None:
        self.refresh()

    def render(self) -> Text:
        """Return each key and what it does."""
        dark = bool(self.app.current_theme.dark)
        text, shown = Text(no_wrap=True, overflow="ellipsis"), set()
        self._places.clear()
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and binding.action not in shown:
                shown.add(binding.action)
                begin = text.cell_len
                text.append(
                    f" {self.app.get_key_display(binding)}", style("title" if enabled else "dim", dark)
                )
                text.append(f" {binding.description} ", "" if enabled else style("dim", dark))
                self._places.append((begin, text.cell_len, binding.key))
        return text

    def on_click(self, event: Click) -> None:
        """Do as if the key was pressed."""
        for begin, end, key in self._places:
            if begin <= event.x < end:
                self.app.simulate_key(key)
