"""Records as lines of JSON: what is written is read, by somewhat other versions too."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import (
    BlockChanged,
    GrantChanged,
    HostLoad,
    JobChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StreamOpened,
    TaskChanged,
    TaskCounts,
    WorkerChanged,
)
from gspc_trio.records.lines import BadRecordLine, decode_record, encode_record

times = st.floats(0, 1e9)
texts = st.text(max_size=20)
counts = st.integers(0, 10**6)
tasks = st.builds(
    TaskChanged, times, texts, counts, st.sampled_from(TaskState), counts, texts, texts, texts, times, times
)
any_record: st.SearchStrategy[Record] = st.one_of(
    tasks,
    st.builds(StreamOpened, times, times, texts),
    st.builds(JobChanged, times, texts, texts, texts, texts),
    st.builds(
        TaskCounts, times, texts, st.dictionaries(st.sampled_from(TaskState), counts), times, times,
        st.lists(st.tuples(counts, counts)).map(tuple), st.lists(tasks, max_size=3).map(tuple),
    ),
    st.builds(
        GrantChanged, times, texts, st.tuples(counts, counts), st.lists(texts).map(tuple), st.booleans()
    ),
    st.builds(ResourceChanged, times, texts, texts, texts, texts, st.lists(texts).map(tuple)),
    st.builds(WorkerChanged, times, texts, texts, texts, counts, texts),
    st.builds(RifChanged, times, texts, texts, texts, texts),
    st.builds(HostLoad, times, texts, texts, times, counts, times, counts, counts),
    st.builds(SiteChanged, times, texts, texts, texts, counts, texts),
    st.builds(
        BlockChanged, times, texts, texts, texts, counts, counts, times, counts, texts,
        st.none() | times, texts,
    ),
)  # fmt: skip


@given(any_record)
def test_what_is_written_is_read(record: Record) -> None:
    line = encode_record(record)
    assert "\n" not in line
    assert decode_record(line) == record
    assert decode_record(line.encode()) == record


@pytest.mark.parametrize(
    "line",
    [
        '{"record":"TaskChanged","at_s":"now","job":"j1","task_id":1,"state":"ready"}',
        '{"record":"TaskChanged","at_s":NaN,"job":"j1","task_id":1,"state":"ready"}',
        '{"record":"TaskChanged","at_s":1e999,"job":"j1","task_id":1,"state":"ready"}',
        '{"record":"TaskChanged","at_s":1.0,"job":"j1","task_id":1,"state":"bogus"}',
        '{"record":"TaskCounts","at_s":1.0,"job":"j1","counts":{"bogus":1}}',
        '{"record":"ResourceChanged","at_s":1.0,"resource_id":["r1"],"resource_class":"core","state":"added"}',
    ],
)
def test_a_field_of_a_wrong_type_makes_no_record(line: str) -> None:
    with pytest.raises(BadRecordLine):
        decode_record(line)


@given(any_record)
def test_a_newer_version_may_say_more(record: Record) -> None:
    data = json.loads(encode_record(record)) | {"colour": "green"}
    assert decode_record(json.dumps(data)) == record


def test_an_older_version_may_say_less() -> None:
    line = '{"record":"TaskChanged","at_s":1.0,"job":"j1","task_id":3,"state":"ready"}'
    assert decode_record(line) == TaskChanged(1.0, "j1", 3, TaskState.READY)


@pytest.mark.parametrize(
    "line",
    ["", "x", "[]", "7", "{}", '{"record":"Nothing"}', '{"record":"TaskChanged"}', '{"record":["a"]}',
     '{"record":"TaskChanged","at_s":1.0,"job":"j1","task_id":3,"state":"lazy"}'],
)  # fmt: skip
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(BadRecordLine):
        decode_record(line)
