"""Definition of a workflow in a file: a function ``workflow(**settings)`` returns a net or a Workflow."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, Union, cast

from attrs import evolve, field, frozen

from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.uri import mask_text
from gspc_trio.workflow.arcs import WorkflowError, forward
from gspc_trio.workflow.net import Net, input_values
from gspc_trio.workflow.tokens import Outputs, Plain

Transformation: TypeAlias = Callable[[Net], Net]
"""Takes a net and returns that net, or a changed copy."""

Report: TypeAlias = Callable[[Outputs], None]
"""Prints the outputs (output port -> values) for people."""

Offered: TypeAlias = Callable[..., object]
"""A function that a job serves to clients (APP-2), plain or async."""

if TYPE_CHECKING:
    from gspc_trio.workflow.ports import Notation

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

_RPC, _TRANSFORMATION = "_gspc_rpc", "_gspc_transformation"
"""Attributes by which functions of a workflow file are found."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class SettingError(ValueError):
    """A setting is unknown, missing or has a bad value; the message is one line for the user."""


@frozen
class Workflow:
    """A net, the values that it starts with, and a function that reports the results.

    Attributes:
        net: the workflow.
        values: input port -> values of its tokens.
        report: called at the end with output port -> values; prints a report. None: the values are printed.
        functions: name -> what the job serves to clients under that name, see :func:`rpc`.
        transformations: applied to the net in order before it runs, see :func:`transformation`.
        dump: of a job of this workflow; its state is what it starts with, in place of the values.
        notation: how clients write values of tokens that they put; None: as JSON, or else as text.
        may_lack_values: whether input ports may lack values: it is only looked at, and does not run.

    Raises:
        WorkflowError: the values do not fit the net, or the net makes no sense.
    """

    net: Net
    values: Mapping[str, Iterable[object]] = field(factory=dict)
    report: Report | None = None
    functions: Mapping[str, Offered] = field(factory=dict)
    transformations: Sequence[Transformation] = ()
    dump: Mapping[str, Plain] | None = None
    notation: Notation | None = None
    may_lack_values: bool = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.net, Net):
            raise WorkflowError(f"a workflow needs a Net, not {self.net!r}")
        self.net.check()
        given = input_values(self.net, self.values, complete=not self.may_lack_values)
        object.__setattr__(self, "values", given)


def rpc(function: FunctionT) -> FunctionT:
    """Offer a function of a workflow file to clients of its job (APP-2); a decorator.

    ``gspc-jobserver call JOB NAME [ARGUMENTS]`` and ``rts.call(job_id, name, ...)`` call it in the process of
    the job server, between other things: it should be short, or async. If its first parameter is named
    ``job``, that is the :class:`Job`, and clients do not give it.

    Args:
        function: plain or async; its name is the one by which clients call it.
    """
    setattr(function, _RPC, True)
    return function


def transformation(function: FunctionT) -> FunctionT:
    """Have a function of a workflow file change each net before it runs (APP-2); a decorator.

    Transformations are applied in the order in which they stand in the file, and the one that ends a workflow
    at its final output ports after all others.

    Args:
        function: takes a Net and returns that net, or a changed copy.
    """
    setattr(function, _TRANSFORMATION, True)
    return function


def with_offers(workflow: Workflow, namespace: Mapping[str, object]) -> Workflow:
    """Return a workflow with the functions and transformations that its file offers by decorators.

    Args:
        workflow: what the file's function returned.
        namespace: name -> what the file has under it.

    Raises:
        WorkflowError: two functions are offered under one name.
    """
    marked = {name: value for name, value in namespace.items() if callable(value)}
    functions = {name: value for name, value in marked.items() if getattr(value, _RPC, False) is True}
    twice = sorted(functions.keys() & workflow.functions.keys())
    if twice:
        raise WorkflowError(f"two functions are offered under the name {twice[0]!r}")
    transformations = [value for value in marked.values() if getattr(value, _TRANSFORMATION, False) is True]
    return evolve(
        workflow,
        functions={**workflow.functions, **functions},
        transformations=(*workflow.transformations, *cast("list[Transformation]", transformations)),
    )


def transformed(net: Net, transformations: Sequence[Transformation]) -> Net:
    """Return a net after transformations, in their order.

    Raises:
        WorkflowError: one returned something else, or a net that makes no sense; or this is no net.
    """
    if not isinstance(net, Net):
        raise WorkflowError(f"a workflow needs a Net, not {net!r}")
    for change in transformations:
        changed = change(net)
        if not isinstance(changed, Net):
            name = getattr(change, "__name__", repr(change))
            raise WorkflowError(f"the transformation {name} returned {changed!r}; a Net is wanted")
        net = changed
    return net


TERMINATED = "(terminated)"
"""Place whose token ends a workflow."""

RUNNING = "(running)"
"""Place whose token a termination transition takes, so that a workflow is ended once."""


def terminate(net: Net) -> Net:
    """Return a net with a termination transition for each of its final output ports.

    A termination transition fires before all others, as soon as a token is at its port, and puts one onto
    the place ``(terminated)``: from then on the engine hands out no task. What runs may still end and is
    taken in. A net without final output ports is returned as it is; it ends when nothing is left to do.
    """
    finals = [place for place in net.places.values() if place.is_final]
    if not finals or TERMINATED in net.places:
        return net
    ending = net.copy()
    running = ending.place(RUNNING, [None], may_keep=True)
    terminated = ending.place(TERMINATED, stops=True)
    priority = 1 + max((transition.priority for transition in net.transitions.values()), default=0)
    for port in finals:
        ending.transition(
            f"(terminate at {port.name})",
            None,
            {"_running": running},
            forward("_running", terminated),
            reads={"_result": port},
            priority=priority,
        )
    return ending


def takes_job(function: Offered) -> bool:
    """Return whether the first parameter of an offered function is the job that offers it."""
    return next(iter(inspect.signature(function).parameters), "") == "job"


def build_workflow(
    function: Callable[..., object],
    settings: Sequence[str] | Mapping[str, str] = (),
    *,
    may_lack_values: bool = False,
) -> Workflow:
    """Call the function of a workflow file with settings and return the workflow.

    Args:
        function: returns a Workflow or a Net; its parameters are the settings, converted as they are
            annotated (str, int, float, bool, Path, Literal, each also optional; without annotation like
            their default).
        settings: texts ``name=value``, or a mapping name -> text.
        may_lack_values: whether input ports of a net that it returns may lack values, see Workflow.

    Raises:
        SettingError: a setting is unknown, missing, badly written or has a bad value.
        WorkflowError: what the function returned is no workflow, or none that makes sense.
    """
    given = settings if isinstance(settings, Mapping) else split_settings(settings)
    built = function(**convert_settings(function, given))
    if isinstance(built, Net):
        return Workflow(built, may_lack_values=may_lack_values)
    if isinstance(built, Workflow):
        return built
    raise WorkflowError(f"{function.__name__}() returned {built!r}; a Net or a Workflow is wanted")


def split_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return name -> text for texts ``name=value``; of several for one name the last counts.

    Raises:
        SettingError: one has no name or no ``=``.
    """
    given = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"a setting is written name=value, not {setting!r}")
        given[name.strip()] = text
    return given


def convert_settings(function: Callable[..., object], given: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments for ``function`` that these settings stand for.

    Raises:
        SettingError: a setting is unknown, missing or has a bad value.
    """
    parameters = inspect.signature(function, eval_str=True).parameters
    for name in given:
        if name not in parameters:
            meant = did_you_mean(name, parameters)
            raise SettingError(f"there is no setting {name!r}; {_known(parameters)}{meant}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise SettingError(f"the setting {name!r} is needed; {_known(parameters)}")
    return {name: _convert(parameters[name], text) for name, text in given.items()}


def _known(parameters: Mapping[str, inspect.Parameter]) -> str:
    if not parameters:
        return "this workflow has no settings"
    return "the settings are: " + ", ".join(map(_shown, parameters.values()))


def _shown(parameter: inspect.Parameter) -> str:
    kind, default = parameter.annotation, parameter.default
    text = parameter.name if kind is inspect.Parameter.empty else f"{parameter.name}: {_describe(kind)}"
    return text if default is inspect.Parameter.empty else f"{text} = {default!r}"


def _convert(parameter: inspect.Parameter, text: str) -> object:
    kind = parameter.annotation
    if kind is inspect.Parameter.empty:
        default = parameter.default
        kind = str if default is inspect.Parameter.empty or default is None else type(default)
    for candidate in _alternatives(kind):
        try:
            return _convert_to(candidate, text)
        except SettingError:
            raise
        except ValueError:
            continue
    shown = mask_text(text, text)
    raise SettingError(f"the setting {parameter.name!r} must be {_describe(kind)}, not {shown!r}")


def _alternatives(kind: object) -> list[object]:
    """Return the types of a union, str last since it takes everything."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return sorted(typing.get_args(kind), key=lambda one: one is str)
    return [kind]


def _convert_to(kind: object, text: str) -> object:
    if kind is type(None):
        if text:
            raise ValueError(text)
        return None
    if kind is bool:
        if text.lower() in _TRUE or text.lower() in _FALSE:
            return text.lower() in _TRUE
        raise ValueError(text)
    if typing.get_origin(kind) is Literal:
        for value in typing.get_args(kind):
            if str(value) == text:
                return value
        raise ValueError(text)
    for known in (int, float, str, Path):
        if kind is known:
            return known(text)
    raise SettingError(
        f"a setting cannot be of type {_describe(kind)}; allowed are str, int, float, bool and Path"
    )


def _describe(kind: object) -> str:
    """Return what to call a type before people: ``int``, ``list[int]``, ``'fast' or 'slow'``."""
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
