"""A performance model as text: JSON, one run time on a line, so that people can read, write and mend it.

    {"version": 1, "times": [
    {"code": "solve", "variant": "gpu", "run_s": 0.5},
    {"code": "f", "variant": "cpu", "class": "core", "processor": "", "size": 8, "mean_s": 4, "samples": 2}
    ]}

``run_s`` is stated by hand; ``mean_s`` was measured; ``law`` holds the sums of a power law.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gspc_trio.components.job.scheduler.interface import RunKey
from gspc_trio.policies.performance_model import (
    Curve,
    Law,
    Mean,
    PerformanceModel,
    Positive,
    Stated,
    Times,
    Whole,
    size_class,
)

VERSION = 1
"""Of the format."""

Sum = Annotated[float, Meta(gt=-1e18, lt=1e18)]

_SPACE = re.compile(r"[ \t\r\n]*")


class BadModel(ValueError):
    """A text is no performance model; the message names the line."""


class _LawRow(Struct, frozen=True, forbid_unknown_fields=True):
    samples: Positive
    x: Sum
    y: Sum
    xx: Sum
    xy: Sum
    smallest: Positive
    largest: Positive


class _Row(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of the list."""

    code: str
    variant: str
    resource_class: str | None = msgspec.field(name="class", default=None)
    processor: str | None = None
    size: Whole | None = None
    run_s: Times | None = None
    mean_s: Times | None = None
    samples: Positive | None = None
    errors: Whole = 0
    law: _LawRow | None = None


def model_text(model: PerformanceModel) -> str:
    """Return a model as text."""
    rows = [
        _Row(key.code, key.variant, key.resource_class, key.processor, key.size, run_s=run_s)
        for key, run_s in model.stated.items()
    ]
    for key, curve in model.curves.items():
        names = (key.code, key.variant, key.resource_class, key.processor)
        for size, mean in curve.means.items():
            rows.append(_Row(*names, size, None, mean.mean_s, mean.samples, mean.errors))
        law = curve.law
        if law.samples:
            smallest, largest = int(law.smallest), int(law.largest)
            sums = _LawRow(law.samples, law.x, law.y, law.xx, law.xy, smallest, largest)
            rows.append(_Row(*names, law=sums))
    lines = [_line(row) for row in sorted(rows, key=_order)]
    return f'{{"version": {VERSION}, "times": [\n' + ",\n".join(lines) + "\n]}\n"


def _line(row: _Row) -> str:
    fields = msgspec.to_builtins(row)
    line = json.dumps(fields, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # bytes that are no text, in a name
        return json.dumps(fields)
    return line


def _order(row: _Row) -> tuple[object, ...]:
    names = (row.code, row.variant, row.resource_class or "", row.processor or "")
    return *names, row.law is not None, -1 if row.size is None else row.size, row.run_s is None


def read_model(text: str) -> PerformanceModel:
    """Return the model that a text is.

    Raises:
        BadModel: it is none.
    """
    found = PerformanceModel()
    laws: dict[RunKey, Law] = {}
    version = None
    for name, value, line in _fields(text):
        if name == "version":
            version = value
            if value != VERSION:
                raise BadModel(f"line {line}: version {value!r:.40} is not known here, only {VERSION}")
        elif name == "times":
            _take(found, laws, value, line)
        else:
            raise BadModel(f'line {line}: {name!r:.40} is neither "version" nor an entry of "times"')
    if version is None:
        raise BadModel('line 1: it states no "version"')
    for key, law in laws.items():
        if key in found.curves:
            found.curves[key].law = law
    return found


def _take(found: PerformanceModel, laws: dict[RunKey, Law], value: object, line: int) -> None:
    try:
        row = msgspec.convert(value, _Row)
    except msgspec.ValidationError as error:
        raise BadModel(f"line {line}: {error}") from None
    kinds = [row.run_s is not None, row.mean_s is not None, row.law is not None]
    if kinds.count(True) != 1:
        raise BadModel(f"line {line}: one of run_s, mean_s and law is wanted")
    if row.run_s is not None:
        if row.samples is not None or row.errors:
            raise BadModel(f"line {line}: run_s is stated, and has neither samples nor errors")
        size = None if row.size is None else size_class(row.size)
        stated = Stated(row.code, row.variant, row.resource_class, row.processor, size)
        _put(found.stated, stated, row.run_s, line)
        return
    if row.resource_class is None or row.processor is None:
        raise BadModel(f"line {line}: what was measured needs class and processor")
    key = RunKey(row.code, row.variant, row.resource_class, row.processor)
    if row.law is not None:
        _put(laws, key, Law(*msgspec.structs.astuple(row.law)), line)
        return
    if row.size is None or row.samples is None or row.mean_s is None or row.errors >= row.samples:
        raise BadModel(f"line {line}: mean_s needs size and samples, and fewer errors than samples")
    if size_class(row.size) != row.size:
        raise BadModel(f"line {line}: size {row.size} of what was measured is no power of two")
    means = found.curves.setdefault(key, Curve()).means
    _put(means, row.size, Mean(row.samples, row.mean_s, row.errors), line)


def _put(table: dict[Any, Any], key: object, value: object, line: int) -> None:
    if key in table:
        raise BadModel(f"line {line}: it is there twice")
    table[key] = value


def _fields(text: str) -> Iterator[tuple[str, object, int]]:
    """Yield the fields of an object, and of ``times`` each element, with the line where the value begins."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    reader = _Reader(text, decoder)
    if not reader.takes("{"):
        raise BadModel(f"line {reader.line()}: a performance model begins with {{")
    seen: set[str] = set()
    for _ in reader.items("}"):
        name, line = reader.value(), reader.line()
        if not isinstance(name, str) or not reader.takes(":"):
            raise BadModel(f'line {line}: a name and ":" are wanted')
        if name in seen:
            raise BadModel(f"line {line}: {name!r:.40} is there twice")
        seen.add(name)
        if name == "times" and reader.takes("["):
            for _ in reader.items("]"):
                line = reader.line()
                yield name, reader.value(), line
        else:
            line = reader.line()
            yield name, reader.value(), line
    if reader.position < len(text):
        raise BadModel(f"line {reader.line()}: there is more behind the model")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


class _Reader:
    """Goes through a JSON text, and knows in which line it is."""

    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self._text, self._decode = text, decoder.raw_decode
        self.position = 0
        self._counted, self._line = 0, 1  # what is before is not looked at again for the number of the line
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self.position)
        assert found is not None, "no space is space, too"
        self.position = found.end()

    def line(self) -> int:
        """Return the number of the line, from 1."""
        self._line += self._text.count("\n", self._counted, self.position)
        self._counted = self.position
        return self._line

    def takes(self, mark: str) -> bool:
        """Return whether this is next; then go behind it."""
        if not self._text.startswith(mark, self.position):
            return False
        self.position += len(mark)
        self._skip()
        return True

    def items(self, end: str) -> Iterator[None]:
        """Yield before each item up to this mark; whoever reads it does so between two of them."""
        if self.takes(end):
            return
        while True:
            yield
            if self.takes(end):
                return
            if not self.takes(","):
                raise BadModel(f'line {self.line()}: "," or "{end}" is wanted')

    def value(self) -> object:
        """Return the next value."""
        try:
            value, self.position = self._decode(self._text, self.position)
        except json.JSONDecodeError as error:
            raise BadModel(f"line {error.lineno}: {error.msg.removesuffix(' at')}") from None
        except (ValueError, RecursionError) as error:
            raise BadModel(f"line {self.line()}: {error}") from None
        self._skip()
        return value
