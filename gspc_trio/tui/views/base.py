"""The base class of all views."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from gspc_trio.core.ids import JobId
from gspc_trio.tui.model import Model
from gspc_trio.tui.table import WindowTable

if TYPE_CHECKING:
    from gspc_trio.tui.app import TopApp


class View(Vertical):
    """One side of the model.

    Attributes:
        NAME, KEY: how it is called, and the key that shows it.
        HELP: what is to be seen, a few lines.
        text: what its filter says, "" for everything.
    """

    NAME: ClassVar[str]
    KEY: ClassVar[str]
    HELP: ClassVar[str]

    text: str = ""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    @property
    def top(self) -> TopApp:
        """The application."""
        return cast("TopApp", self.app)

    @property
    def model(self) -> Model:
        """What to draw."""
        return self.top.model

    @property
    def table(self) -> WindowTable:
        """The table that has the focus when the view is shown."""
        return self.query_one(WindowTable)

    def compose(self) -> ComposeResult:
        """Return the view's parts, its filter last."""
        yield from self.parts()
        yield Input(placeholder="filter", classes="filter", compact=True)

    @abstractmethod
    def parts(self) -> ComposeResult:
        """Return the widgets of the view but its filter."""

    @abstractmethod
    def draw(self) -> None:
        """Show how things are now."""

    def entered(self) -> None:
        """The view is to be seen from now on."""

    # The filter ---------------------------------------------------------------------------------------------

    def open_filter(self) -> None:
        """Let the user type what rows must contain."""
        field = self.query_one(".filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what fits to the filter so far."""
        self.text = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Go back to the table, with the filter."""
        self.table.focus()
        self.query_one(".filter", Input).display = bool(self.text)

    def close_filter(self) -> bool:
        """Show everything again; return whether there was a filter."""
        field = self.query_one(".filter", Input)
        there = field.display
        field.value = ""
        field.display = False
        self.table.focus()
        return there

    # What actions need --------------------------------------------------------------------------------------

    def job_under_cursor(self) -> JobId | None:
        """Return the job that an action on a job is about."""
        return self.top.job

    def fits(self, words: Sequence[object]) -> bool:
        """Return whether one of the words contains the filter's text."""
        text = self.text.lower()
        return not text or any(text in str(word).lower() for word in words)
