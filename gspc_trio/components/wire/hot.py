"""Hooks by hand for the messages that carry every task and every grant: the same arrays as
``protocol/hooks.py`` makes, several times faster.

Types are checked all the same. Shapes are few and come often, so that they are read once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cattrs import Converter

from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.task import DEFAULT_OPTIONS, Outcome, Reason, Shape, TaskOptions
from gspc_trio.protocol.hooks import BadField, class_reader, class_writer
from gspc_trio.protocol.limits import NUMBER_MAX

_BYTES = {bytes}
_TEXTS = {str}
_REASONS = {reason.value: reason for reason in Reason}
_SHAPES_KEPT = 4096
_OPTIONS_KEPT = 1024


def register_hot_hooks(converter: Converter) -> None:
    """Register them over the general hooks."""
    _register_options_and_shapes(converter)
    _register_grants(converter)
    _register_submissions(converter)
    _register_outcomes(converter)


def _register_options_and_shapes(converter: Converter) -> None:
    """Read each distinct value once: instances are immutable, so that all messages may share one."""
    for kind, kept in ((TaskOptions, _OPTIONS_KEPT), (Shape, _SHAPES_KEPT)):
        read = class_reader(kind, converter)
        cached = lru_cache(kept)(lambda data, read=read: read(data, None))
        converter.register_structure_hook(kind, lambda data, _, cached=cached: cached(data))
    write = class_writer(Shape, converter)
    converter.register_unstructure_hook(Shape, lru_cache(_SHAPES_KEPT)(lambda shape: tuple(write(shape))))


def _register_grants(converter: Converter) -> None:
    """Read what is as usual at once, and leave all else to the general hooks, which say what is wrong."""
    read_shape, write_shape = converter.get_structure_hook(Shape), converter.get_unstructure_hook(Shape)
    general = {kind: class_reader(kind, converter) for kind in (Demand, Release, Grant)}

    def write_demand(it: Demand) -> tuple[object, ...]:
        fields = (it.job, write_shape(it.shape), it.credit, it.seen)
        if it.shared:
            return (*fields, it.priority, True)
        return (*fields, it.priority) if it.priority else fields

    def read_demand(data: object, kind: object) -> Demand:
        if type(data) is tuple and len(data) == 4:
            job, shape, credit, seen = data
            if type(job) is str and _is_number(credit) and _is_grant_id(seen):
                return Demand(job, read_shape(shape, Shape), credit, seen)
        found: Demand = general[Demand](data, kind)
        return found

    def write_release(it: Release) -> tuple[object, ...]:
        return (it.job, it.grant_id, it.resources) if it.resources else (it.job, it.grant_id)

    def read_release(data: object, kind: object) -> Release:
        if type(data) is tuple and len(data) == 2:
            job, grant_id = data
            if type(job) is str and _is_grant_id(grant_id):
                return Release(job, grant_id)
        found: Release = general[Release](data, kind)
        return found

    def write_grant(it: Grant) -> tuple[object, ...]:
        fields = (it.job, write_shape(it.shape), it.grant_id, it.resources)
        return (*fields, it.memories) if it.memories else fields

    def read_grant(data: object, kind: object) -> Grant:
        if type(data) is tuple and len(data) == 4:
            job, shape, grant_id, resources = data
            if (
                type(job) is str
                and _is_grant_id(grant_id)
                and type(resources) is tuple
                and _TEXTS.issuperset(map(type, resources))
            ):
                return Grant(job, read_shape(shape, Shape), grant_id, resources)
        found: Grant = general[Grant](data, kind)
        return found

    hooks = (
        (Demand, read_demand, write_demand),
        (Release, read_release, write_release),
        (Grant, read_grant, write_grant),
    )
    for kind, read, write in hooks:
        converter.register_structure_hook(kind, read)
        converter.register_unstructure_hook(kind, write)


def _is_grant_id(data: object) -> bool:
    # Written out: it comes with each grant, and a call costs more than what it looks at.
    if type(data) is not tuple or len(data) != 2:
        return False
    epoch, number = data
    return type(epoch) is int is type(number) and 0 <= epoch <= NUMBER_MAX and 0 <= number <= NUMBER_MAX


def _is_number(data: object) -> bool:
    return type(data) is int and 0 <= data <= NUMBER_MAX


def _is_time(data: object) -> bool:
    return type(data) is float and -NUMBER_MAX <= data <= NUMBER_MAX


def _register_submissions(converter: Converter) -> None:
    read_options = converter.get_structure_hook(TaskOptions)
    read_general = class_reader(Submission, converter)
    write_options = converter.get_unstructure_hook(TaskOptions)

    def write_submission(it: Submission) -> tuple[object, ...]:
        if it.directory or it.input_bytes or it.after is not None or it.rank:
            options = write_options(it.options)
            local: tuple[object, ...] = (it.held, it.directory, it.input_bytes, it.after)
            if it.rank:
                local += (it.rank,)
            return (it.task_id, it.attempt, it.code_id, it.arguments, options, *local)
        if it.held:
            options = write_options(it.options)
            return (it.task_id, it.attempt, it.code_id, it.arguments, options, it.held)
        if it.options is DEFAULT_OPTIONS or it.options == DEFAULT_OPTIONS:
            return (it.task_id, it.attempt, it.code_id, it.arguments)
        return (it.task_id, it.attempt, it.code_id, it.arguments, write_options(it.options))

    def read_submission(data: object) -> Submission:
        if type(data) is not tuple or not 3 <= len(data) <= 10:
            raise BadField("Submission: not an array of 3 to 10 fields")
        held: tuple[str, ...] = ()
        if len(data) > 6:
            found: Submission = read_general(data, Submission)
            return found
        if len(data) == 6:
            *data, held = data
            if type(held) is not tuple or not all(type(text) is str for text in held):
                raise BadField("Submission: a field of a wrong type")
        if len(data) == 4:
            task_id, attempt, code_id, arguments = data
            options = DEFAULT_OPTIONS
        else:
            task_id, attempt, code_id, *rest = data
            arguments = rest[0] if rest else ()
            options = read_options(rest[1], TaskOptions) if rest else DEFAULT_OPTIONS
        if (
            not _is_number(task_id)
            or not _is_number(attempt)
            or not _is_number(code_id)
            or type(arguments) is not tuple
            or not _BYTES.issuperset(map(type, arguments))
        ):
            raise BadField("Submission: a field of a wrong type")
        return Submission(task_id, attempt, code_id, arguments, options, held)

    def write_submit(it: Submit) -> tuple[object, ...]:
        submissions = [write_submission(submission) for submission in it.submissions]
        return (it.job, it.grant_id, it.resources, submissions, it.resource_class)

    general = class_reader(Submit, converter)

    def read_submit(data: object, kind: object) -> Submit:
        if type(data) is not tuple or len(data) < 4 or type(data[3]) is not tuple:
            raise BadField("Submit: a field missing or of a wrong type")
        head: Submit = general((*data[:3], (), *data[4:]), kind)
        submissions = tuple([read_submission(submission) for submission in data[3]])
        return Submit(head.job, head.grant_id, head.resources, submissions, head.resource_class)

    converter.register_structure_hook(Submission, lambda data, _: read_submission(data))
    converter.register_unstructure_hook(Submission, write_submission)
    converter.register_structure_hook(Submit, read_submit)
    converter.register_unstructure_hook(Submit, write_submit)


def _register_outcomes(converter: Converter) -> None:
    read_general = class_reader(Outcome, converter)
    write_general = class_writer(Outcome, converter)

    def write_outcome(it: Outcome) -> Sequence[object]:
        if it.error is None and not (it.staged_s or it.moved or it.first_run):
            return (
                it.task_id,
                it.attempt,
                it.reason,
                it.values,
                None,
                it.stdout,
                it.stderr,
                it.started_s,
                it.duration_s,
            )
        fields: list[object] = write_general(it)
        return fields

    def read_outcome(data: object) -> Outcome:
        outcome: Outcome
        if type(data) is not tuple or len(data) != 9 or data[4] is not None:
            outcome = read_general(data, Outcome)
            return outcome
        task_id, attempt, reason, values, error, stdout, stderr, started_s, duration_s = data
        if (
            not _is_number(task_id)
            or not _is_number(attempt)
            or type(reason) is not str
            or type(values) is not tuple
            or type(stdout) is not bytes
            or type(stderr) is not bytes
            or not _is_time(started_s)
            or not _is_time(duration_s)
        ):
            outcome = read_general(data, Outcome)
            return outcome
        for tokens in values:
            if type(tokens) is not tuple or not _BYTES.issuperset(map(type, tokens)):
                raise BadField("Outcome: values that are not arrays of encoded values")
        known = _REASONS.get(reason)
        if known is None:
            raise BadField("Outcome: unknown reason")
        return Outcome(task_id, attempt, known, values, error, stdout, stderr, started_s, duration_s)

    def write_finished(it: Finished) -> tuple[object, ...]:
        return (it.job, it.resource_id, [write_outcome(outcome) for outcome in it.outcomes])

    def read_finished(data: object, _: object) -> Finished:
        if type(data) is not tuple or len(data) != 3:
            raise BadField("Finished: not an array of 3 fields")
        job, resource_id, outcomes = data
        if type(job) is not str or type(resource_id) is not str or type(outcomes) is not tuple:
            raise BadField("Finished: a field of a wrong type")
        return Finished(job, resource_id, tuple([read_outcome(outcome) for outcome in outcomes]))

    converter.register_structure_hook(Outcome, lambda data, _: read_outcome(data))
    converter.register_unstructure_hook(Outcome, write_outcome)
    converter.register_structure_hook(Finished, read_finished)
    converter.register_unstructure_hook(Finished, write_finished)
