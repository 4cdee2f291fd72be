"""Nets of xpnet with modules: which function is taken, what is said if there is none."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence

import pytest

from gspc_trio.workflow.formats.format import ForeignWorkflow, FormatError, ReadOptions, Source
from gspc_trio.workflow.formats.in_tasks.native import CompileError, CppSource
from gspc_trio.workflow.formats.xpnet.files import XpnetFormat
from tests.workflow.formats.support import run_to_end
from tests.workflow.formats.xpnet.nets import net, place

PYTHON = '<properties name="gspc-trio"><property key="language">python</property></properties>'
OUT = '<out name="c" type="int" place="c"/>'


def with_module(
    module: str = '<module name="m" function="c add (a, b)"/>',
    *,
    properties: str = "",
    kind: str = "int",
    more: str = "",
    connect: str = '<connect-out port="c" place="c"/>',
) -> str:
    """A net that adds 2 and 3 by a module."""
    transition = f"""
<transition name="add">
  <defun>{properties}
    <in name="a" type="int"/><in name="b" type="int"/><out name="c" type="{kind}"/>{more}
    {module}
  </defun>
  <connect-in port="a" place="a"/><connect-in port="b" place="b"/>{connect}
</transition>"""
    return net(place("a", tokens=("2",)) + place("b", tokens=("3",)) + place("c") + transition, OUT)


def read(
    text: str,
    functions: Mapping[str, Callable[..., object]] | None = None,
    compiler: Callable[[CppSource], Callable[[bytes], bytes]] | None = None,
) -> ForeignWorkflow:
    options = ReadOptions(modules=functions, modules_file="net.py", compile=compiler)
    return XpnetFormat().read(Source("net.xpnet", text.encode()), options)


def results(foreign: ForeignWorkflow) -> list[str]:
    return [foreign.show_value("c", value) for value in run_to_end(foreign.workflow())["c"]]


def problems(text: str, functions: Mapping[str, Callable[..., object]] | None = None) -> list[str]:
    with pytest.raises(FormatError) as caught:
        read(text, functions)
    return [str(problem).removeprefix("net.xpnet:") for problem in caught.value.problems]


def code(text: str) -> str:
    return f'<module name="m" function="c add (a, b)"><code><![CDATA[{text}]]></code></module>'


def test_a_function_of_the_file_beside_is_called_by_the_names_of_ports() -> None:
    assert results(read(with_module(), {"add": lambda b, a: 10 * a + b})) == ["23"]


def test_the_body_may_be_python() -> None:
    assert results(read(with_module(code("\n  c = a * b\n"), properties=PYTHON))) == ["6"]
    assert results(read(with_module(code("return a - b"), properties=PYTHON))) == ["-1"]


def test_a_function_of_the_file_comes_before_the_body() -> None:
    text = with_module(code("return a - b"), properties=PYTHON)
    assert results(read(text, {"add": lambda a, b: a + b})) == ["5"]


def test_elements_of_a_list_become_tokens() -> None:
    text = with_module(kind="list", connect='<connect-out-many port="c" place="c"/>')
    assert results(read(text, {"add": lambda a, b: [a, b, a + b]})) == ["2", "3", "5"]


def test_a_module_in_cpp_is_compiled_and_called_with_bytes() -> None:
    sources: list[CppSource] = []

    def library(data: bytes) -> bytes:
        return data[4:]

    def compiler(source: CppSource) -> Callable[[bytes], bytes]:
        sources.append(source)
        return library

    assert results(read(with_module(code("return b;")), compiler=compiler)) == ["3"]
    assert '#line 5 "net.xpnet"\nreturn b;\n' in sources[0].text


def test_errors_of_the_compiler_are_problems_of_the_net() -> None:
    def compiler(_: CppSource) -> Callable[[bytes], bytes]:
        raise CompileError("net.xpnet: In function:\nnet.xpnet:6:9: error: no x\nx.hpp:3: error: no y\nnote")

    with pytest.raises(FormatError) as caught:
        read(with_module(code("return x;")), compiler=compiler)
    assert str(caught.value).splitlines() == [
        "net.xpnet:5: module 'm': no y (x.hpp, line 3)",
        "net.xpnet:6:9: module 'm': no x",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (with_module(), "5:5: module 'm': it has no <code>: give a function add (a, b) in net.py"),
        (
            with_module(code("return a;")),
            "5:5: module 'm': it is in C++, and nothing is to be compiled: give a",
        ),
        (
            with_module('<module name="m" function="c add (a, b)" pass_context="true"><code/></module>'),
            "5:5: module 'm': it needs pass_context: give a function add (a, b) in net.py",
        ),
        (
            with_module('<module name="m" function="c add (a, x)"/>'),
            "5:5: module 'm': c add (a, x) names 'x', which is no port; the ports are: a, b, c",
        ),
        (
            with_module('<module name="m" function="add (a, b)"/>'),
            "5:5: module 'm': add (a, b) gives the output port 'c' no value",
        ),
        (
            with_module('<module name="m" function="a add (c)"/>'),
            "5:5: module 'm': a add (c) returns 'a', which is no output port",
        ),
        (
            with_module(more='<memory-buffer name="x"><size>"8"</size></memory-buffer>'),
            "4:111: a size is a whole number: this is of type string",
        ),
        (with_module('<module name="m" function="add"/>'), "5:5: module 'm': 'add' is no signature: it is"),
        (
            with_module(code("\n  c = a +\n"), properties=PYTHON),
            "6: module 'm': this is no Python: invalid",
        ),
        (
            with_module(code("x"), properties=PYTHON.replace("python", "fortran")),
            "5:5: module 'm': its gspc-trio.language is 'fortran', and python and c++ are what there is",
        ),
        (
            with_module(code("return 1;"), more='<in name="l" type="list"/>').replace("(a, b)", "(a, b, l)"),
            "5:5: module 'm': port 'l' is list, which modules in C++ have not: give a function add (a, b, l)",
        ),
    ],
)
def test_what_a_module_lacks_is_told(text: str, problem: str) -> None:
    assert any(one.startswith(problem) for one in problems(text)), problems(text)


def test_a_function_with_other_arguments_is_told() -> None:
    (problem,) = problems(with_module(), {"add": lambda a, x: a + x})
    assert (
        problem
        == "5:5: module 'm': net.py has no add (a, b): it takes (a, x): missing a required argument: 'x'"
    )


def test_a_task_of_a_module_can_be_sent() -> None:
    foreign = read(with_module(code("return a + b"), properties=PYTHON))
    run = pickle.loads(pickle.dumps(foreign.net.transitions["add"].run))
    assert run(2, 3) == {"c": 5}


def test_what_a_module_requires_are_resources_of_its_tasks() -> None:
    text = with_module(more='<require key="gpu"/>')
    shape = read(text, {"add": lambda a, b: a + b}).net.transitions["add"].shape
    assert [one.resource_class for one in shape.requirements] == ["gpu"]


def for_targets(*targets: str, groups: Sequence[str] = ("", "")) -> str:
    """Modules for targets, preferred in reverse order."""
    preferences = "".join(f"<target>{target}</target>" for target in reversed(targets))
    modules = "".join(
        f'<module name="m" target="{target}" function="c on_{target} (a, b)" eureka-group="{group}"/>'
        for target, group in zip(targets, groups, strict=True)
    )
    return f"<modules><preferences>{preferences}</preferences>{modules}</modules>"


def test_modules_for_targets_are_variants_in_the_order_of_preference() -> None:
    functions: dict[str, Callable[..., object]] = {
        "on_gpu": lambda a, b: a + b,
        "on_core": lambda a, b: 100 + a + b,
    }
    text = with_module(for_targets("core", "gpu"), more='<require key="node"/>')
    foreign = read(text, functions)
    (transition,) = foreign.workflow().net.transitions.values()
    variants = transition.variants
    assert variants is not None
    assert variants.in_order
    assert [[one.resource_class for one in way.shape.requirements] for way in variants.ways] == [
        ["gpu", "node"],
        ["core", "node"],
    ]
    assert results(foreign) == ["5"]
    assert problems(with_module(for_targets("core", "gpu", groups=("1", "2"))), functions) == [
        "5:82: the modules of all targets are one task: give them the same eureka-group"
    ]
