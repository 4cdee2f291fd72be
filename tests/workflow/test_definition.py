from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import (
    SettingError,
    Workflow,
    build_workflow,
    convert_settings,
    rpc,
    split_settings,
    takes_job,
    transformation,
    transformed,
    with_offers,
)
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm


def many(
    path: Path,
    n: int = 3,
    x: float = 1.0,
    flag: bool = False,
    name: str = "a",
    mode: Literal["fast", "slow"] = "fast",
    limit: int | None = None,
    either: str | int = "",
    bare=5,  # type: ignore[no-untyped-def]
) -> None:
    """Parameters of all kinds."""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("n=-7", -7),
        ("x=2", 2.0),
        ("flag=yes", True),
        ("flag=0", False),
        ("name=b=c", "b=c"),
        ("name=", ""),
        ("mode=slow", "slow"),
        ("limit=4", 4),
        ("limit=", None),
        ("either=8", 8),
        ("either=eight", "eight"),
        ("bare=6", 6),
    ],
)
def test_a_setting_is_converted_as_annotated(setting: str, value: Any) -> None:
    converted = convert_settings(many, split_settings(["path=/tmp", setting]))
    name = setting.partition("=")[0]
    assert converted == {"path": Path("/tmp"), name: value}
    assert type(converted[name]) is type(value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["path=.", "n=three"], "the setting 'n' must be int, not 'three'"),
        (["path=.", "flag=maybe"], "the setting 'flag' must be bool, not 'maybe'"),
        (["path=.", "mode=odd"], "the setting 'mode' must be 'fast' or 'slow', not 'odd'"),
        (["path=.", "m=3"], "there is no setting 'm'; the settings are: path: Path, n: int = 3, "),
        ([], "the setting 'path' is needed; the settings are: path: Path, "),
        (["path"], "a setting is written name=value, not 'path'"),
        (["=3"], "a setting is written name=value, not '=3'"),
    ],
)
def test_a_bad_setting_is_one_clear_line(settings: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        build_workflow(many, settings)
    assert "\n" not in str(caught.value)


def test_a_workflow_without_settings_says_so() -> None:
    with pytest.raises(SettingError, match="there is no setting 'n'; this workflow has no settings"):
        build_workflow(lambda: None, {"n": "3"})


def test_a_type_that_texts_cannot_become_is_refused() -> None:
    def workflow(items: list[int]) -> None:
        """Takes what no text is."""

    with pytest.raises(SettingError, match=r"a setting cannot be of type list\[int\]; allowed are str, int"):
        build_workflow(workflow, ["items=1"])


def test_a_function_may_return_a_net_or_a_workflow() -> None:
    net = farm(abs, default=[1])
    assert build_workflow(lambda: net) == Workflow(net)
    shown: list[Any] = []
    whole = Workflow(net, {"items": range(2)}, shown.append)
    assert build_workflow(lambda: whole) is whole
    assert whole.values == {"items": range(2)}


def test_what_is_no_workflow_is_refused() -> None:
    with pytest.raises(WorkflowError, match=r"<lambda>\(\) returned 3; a Net or a Workflow is wanted"):
        build_workflow(lambda: 3)
    with pytest.raises(WorkflowError, match="a workflow needs a Net, not 3"):
        Workflow(3)  # type: ignore[arg-type]


def test_values_and_net_are_checked_before_anything_runs() -> None:
    with pytest.raises(WorkflowError, match="net 'abs' needs values for its input port 'items'"):
        Workflow(farm(abs))
    with pytest.raises(WorkflowError, match="no input port 'numbers'"):
        Workflow(farm(abs), {"numbers": [1], "items": []})
    broken = Net("broken")
    broken.transition("t", abs, ["nowhere"])
    with pytest.raises(WorkflowError, match="there is no place 'nowhere'"):
        build_workflow(lambda: broken)


def test_a_file_offers_functions_and_transformations_by_decorators() -> None:
    @rpc
    def look(job: object, port: str) -> str:
        return f"{job} {port}"

    @rpc
    def double(n: int) -> int:
        return 2 * n

    @transformation
    def longer(net: Net) -> Net:
        changed = net.copy()
        changed.place("more", may_keep=True)
        return changed

    namespace: dict[str, object] = {"look": look, "again": double, "longer": longer, "other": len, "n": 1}
    net = Net("empty")
    workflow = with_offers(Workflow(net, functions={"size": len}), namespace)
    assert workflow.functions == {"size": len, "look": look, "again": double}
    assert [takes_job(function) for function in workflow.functions.values()] == [False, True, False]
    assert list(transformed(net, workflow.transformations).places) == ["more"]
    with pytest.raises(WorkflowError, match="two functions are offered under the name 'look'"):
        with_offers(Workflow(net, functions={"look": len}), namespace)


def test_a_transformation_that_returns_no_net_is_named() -> None:
    def forgets(net: Net) -> Net:
        net.place("more", may_keep=True)
        return None  # type: ignore[return-value]

    with pytest.raises(WorkflowError, match="the transformation forgets returned None; a Net is wanted"):
        transformed(Net("empty"), [forgets])
