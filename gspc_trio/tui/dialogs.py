"""Dialogs over the views: questions, texts, help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from gspc_trio.tui.text import printable


class Choose(ModalScreen[str | None]):
    """A question with answers to choose from; escape chooses none.

    Args:
        question: what is asked.
        detail: what an answer costs, or "".
        answers: (key, text) of each; the cursor is on the first, which should be harmless.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, detail: str, answers: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._question, self._detail, self._answers = question, detail, answers

    def compose(self) -> ComposeResult:
        """Return question and answers."""
        with Vertical(classes="dialog"):
            yield Label(Text(self._question), classes="question")
            if self._detail:
                yield Static(Text(self._detail), classes="detail")
            yield OptionList(*(Option(Text(text), id=key) for key, text in self._answers))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the answer."""
        self.dismiss(event.option.id)


class Ask(ModalScreen[str | None]):
    """A question that is answered by a line of text; escape answers nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        """Return question and field."""
        with Vertical(classes="dialog"):
            yield Label(Text(self._question), classes="question")
            yield Input(self._value, placeholder=self._hint)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer."""
        self.dismiss(event.value.strip())


class TextPage(ModalScreen[None]):
    """A text of any length."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "Back"),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text, self._shown = title, text, ""

    def compose(self) -> ComposeResult:
        """Return the text in a frame."""
        with VerticalScroll(classes="page") as page:
            page.border_title = self._title.replace("[", "\\[")
            page.border_subtitle = "esc: back  end: stay at the end"
            yield Static(id="page-text")

    def on_mount(self) -> None:
        """Let the keys scroll; show what has come meanwhile."""
        self.query_one(VerticalScroll).focus()
        self.show(self._text)

    def action_scroll(self, by: int) -> None:
        """Scroll by a line."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def action_scroll_end(self) -> None:
        """Go to the end; from there on the end is what is seen."""
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def show(self, text: str) -> None:
        """Show another text; who looks at the end goes on to do so."""
        text = printable(text)
        for body in self.query("#page-text").results(Static):  # none before it is composed
            if text != self._shown:
                self._shown = text
                page = self.query_one(VerticalScroll)
                at_end = 0 < page.max_scroll_y <= page.scroll_offset.y
                body.update(Text(text))
                if at_end:
                    page.scroll_end(animate=False)
        self._text = text
