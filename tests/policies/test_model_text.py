"""Performance models as text: what is read is what was written, and what is wrong is named by its line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.scheduler.interface import RunKey
from gspc_trio.policies.model_text import BadModel, model_text, read_model
from gspc_trio.policies.performance_model import Curve, Mean, PerformanceModel, Stated

NAMES = st.sampled_from(["solve", 'a "b"', "ä", "", "\udc80", "long" * 1000])
STATED = st.builds(
    Stated, NAMES, NAMES, st.none() | NAMES, st.none() | NAMES, st.sampled_from([None, 0, 1, 1024])
)
SAMPLES = st.lists(
    st.tuples(st.builds(RunKey, NAMES, NAMES, NAMES, NAMES), st.integers(0, 1 << 40), st.floats(1e-9, 1e9)),
    max_size=20,
)


@given(SAMPLES, st.dictionaries(STATED, st.floats(0, 1e9), max_size=4))
def test_what_is_read_is_what_was_written(
    samples: list[tuple[RunKey, int, float]], stated: dict[Stated, float]
) -> None:
    model = PerformanceModel(stated=stated)
    for key, size, seconds in samples:
        model.learn(key, size, None, seconds)
    text = model_text(model)
    assert read_model(text) == model
    assert model_text(read_model(text)) == text
    for cut in range(0, len(text) - 1, max(1, len(text) // 20)):
        with pytest.raises(BadModel, match=r"line [0-9]+: "):
            read_model(text[:cut])


def test_a_file_that_people_write_may_state_as_little_as_they_know() -> None:
    text = """{
      "version": 1,
      "times": [
        {"code": "solve", "variant": "gpu", "run_s": 0.5},
        {"code": "solve", "variant": "cpu", "size": 1000, "run_s": 4},
        {"code": "solve", "variant": "cpu", "class": "core", "processor": "",
         "size": 0, "samples": 2, "mean_s": 1}
      ]
    }"""
    stated = {Stated("solve", "gpu"): 0.5, Stated("solve", "cpu", size=1024): 4.0}
    curves = {RunKey("solve", "cpu", "core"): Curve({0: Mean(2, 1.0)})}
    assert read_model(text) == PerformanceModel(curves, stated)


class Searched(str):
    """A text that notes how much of it is searched for ends of lines."""

    characters = 0

    def count(self, mark: str, *range_: Any) -> int:
        start, end = range_
        self.characters += end - start
        return super().count(mark, start, end)


def test_the_lines_of_a_large_file_are_counted_once() -> None:
    model = PerformanceModel()
    for size in range(50):
        model.learn(RunKey("solve", "gpu", "gpu"), 1 << size, None, 0.5)
    text = Searched(model_text(model))
    assert read_model(text) == model
    assert text.characters <= len(text)


TIMES = '{"version": 1, "times": [\n{"code": "a", "variant": "b", "run_s": 1},\n%s\n]}'
MEASURED = '{"code": "a", "variant": "b", "class": "core", "processor": "", "size": 8, "mean_s": 1, %s}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1: a performance model begins with {"),
        ("[]", "line 1: a performance model begins with {"),
        ("{}", 'line 1: it states no "version"'),
        ('{"version": 2}', "line 1: version 2 is not known here, only 1"),
        ('{"version": 1,\n"more": 1}', "line 2: 'more' is neither"),
        ('{"version": 1,\n"version": 1}', "line 2: 'version' is there twice"),
        ('{"version": 1}\n\nmore', "line 3: there is more behind the model"),
        ('{"version": 1 "times": []}', 'line 1: "," or "}" is wanted'),
        ('{"version": 1, 5}', 'line 1: a name and ":" are wanted'),
        ('{"version": 1,\n"tim', "line 2: Unterminated string starting"),
        ('{"version": 1,\n"times": 5}', "line 2: Expected `object`, got `int`"),
        (TIMES % '{"code": "a"', "line 4: Expecting ',' delimiter"),
        (TIMES % "{}", "line 3: Object missing required field `code`"),
        (TIMES % '{"code": "a", "variant": "b", "run_s": "1"}', "line 3: Expected `float | null`, got `str`"),
        (TIMES % '{"code": "a", "variant": "b", "run_s": NaN}', "line 3: NaN is no number"),
        (TIMES % '{"code": "a", "variant": "b", "run_s": -1}', "line 3: Expected `float` >= 0"),
        (TIMES % '{"code": "a", "variant": "b", "runs": 1}', "line 3: Object contains unknown field `runs`"),
        (TIMES % '{"code": "a", "variant": "b"}', "line 3: one of run_s, mean_s and law is wanted"),
        (TIMES % '{"code": "a", "variant": "b", "run_s": 1, "samples": 2}', "line 3: run_s is stated"),
        (TIMES % '{"code": "a", "variant": "b", "run_s": 2}', "line 3: it is there twice"),
        (TIMES % '{"code": "a", "variant": "b", "mean_s": 2}', "line 3: what was measured needs class"),
        (
            TIMES % (MEASURED % '"samples": 1, "errors": 1'),
            "line 3: mean_s needs size and samples",
        ),
        (TIMES % (MEASURED.replace("8", "9") % '"samples": 1'), "line 3: size 9 of what was measured"),
        (TIMES % (MEASURED % f'"samples": {10**400}'), "line 3: Expected `int` <= "),
        (TIMES % ("[" * 100_000), "line 3: "),
    ],
)
def test_what_is_wrong_is_named_by_its_line(text: str, says: str) -> None:
    with pytest.raises(BadModel) as raised:
        read_model(text)
    assert str(raised.value).startswith(says)
