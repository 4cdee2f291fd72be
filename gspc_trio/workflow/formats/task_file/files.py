"""The format of task files."""

from __future__ import annotations

from typing import ClassVar

from gspc_trio.workflow.formats.format import ForeignWorkflow, Format, ReadOptions, Source


class TaskFileFormat(Format):
    """Tasks with their data, code, threads and dependencies (ASP-1), in TOML."""

    name: ClassVar[str] = "tasks"
    suffixes: ClassVar[tuple[str, ...]] = (".toml",)

    def recognises(self, head: bytes) -> bool:
        """See Format."""
        return b"[[task]]" in head.replace(b" ", b"")

    def read(self, source: Source, _options: ReadOptions, /) -> ForeignWorkflow:
        """See Format."""
        from gspc_trio.workflow.formats.task_file.read import read_tasks  # what only reading needs

        return read_tasks(source)
