"""Published data as an input of transitions: read from a place of its own, never taken."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.code import Program
from gspc_trio.core.staging import Data, Named
from gspc_trio.protocol.values import BadValue, dumps, join, loads
from gspc_trio.workflow.arcs import WorkflowError, take
from gspc_trio.workflow.definition import terminate
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

CORPUS = Named("corpus")


def count(word: str, text: bytes) -> int:
    return text.count(word.encode())


def engine_of(net: Net, **values: list[Any]) -> WorkflowEngine:
    return WorkflowEngine(terminate(net), values, dumps=dumps, loads=loads, join=join)


def arguments_of(engine: WorkflowEngine) -> list[list[Any]]:
    found = []
    while (task_id := engine.next()) is not None:
        found.append([loads(value) for value in engine.extract(task_id).arguments])
        engine.inject(task_id, ((dumps(0),),))
    return found


@pytest.mark.parametrize("by_name", [True, False])
def test_every_task_is_given_what_the_name_stands_for(by_name: bool) -> None:
    net = Net("words")
    words = net.input("words")
    inputs: Any = {"word": words, "text": CORPUS} if by_name else [words, CORPUS]
    net.transition("count", count, inputs, net.output("counts"))
    engine = engine_of(net, words=["a", "b"])
    assert engine.named == {"corpus"}
    engine.resolve({"corpus": b"a b a"})
    assert arguments_of(engine) == [["a", b"a b a"], ["b", b"a b a"]]
    assert engine.explain_stuck() == []
    assert engine.outputs() == {"counts": [0, 0]}


def test_it_may_be_read_and_shared_and_be_a_token() -> None:
    net = Net("words")
    texts, counts = net.input("texts"), net.output("counts")
    net.transition("count", count, {"word": net.input("words")}, counts, reads={"text": CORPUS})
    net.transition("again", count, {"text": texts, "word": net.input("others")}, counts)
    engine = engine_of(net, words=["a"], others=["b"], texts=[Named("other")])
    assert engine.named == {"corpus", "other"}
    engine.resolve({"corpus": b"1", "other": b"2"})
    assert sorted(arguments_of(engine), key=str) == [["a", b"1"], [b"2", "b"]]


def test_it_may_be_a_file_that_the_code_does_not_see() -> None:
    net = Net("sort")
    seen = []

    def is_wanted(word: str) -> bool:
        seen.append(word)
        return True

    net.transition(
        "sort",
        Program(["sort", "corpus.txt"]),
        [net.input("words")],
        {"sorted": net.output("sorted")},
        condition=is_wanted,
        stage_in={"corpus.txt": CORPUS, "text.txt": "texts/{item}.txt"},
        stage_out={"sorted.txt": Data("sorted")},
    )
    engine = engine_of(net, words=["a"])
    engine.resolve({"corpus": b"the text"})
    task_id = engine.next()
    assert task_id is not None
    word, text, plan = engine.extract(task_id).arguments
    assert (loads(word), loads(text), seen) == ("a", b"the text", ["a"])
    stage = net.transitions["sort"].stage
    assert stage is not None
    assert plan == stage.plan(1, {0: [0], 1: [1]}, {"item": "a"}).encoded()


def test_what_makes_no_sense_is_refused() -> None:
    net = Net("words")
    words = net.input("words")
    with pytest.raises(WorkflowError, match="only tasks see published data"):
        net.transition("count", count, {"word": words, "text": CORPUS}, inline=True)
    with pytest.raises(WorkflowError, match="it takes no token"):
        net.transition("count", count, {"text": CORPUS})
    with pytest.raises(WorkflowError, match=r"count\(word, text\) does not fit its inputs"):
        net.transition("count", count, {"word": words, "book": CORPUS})
    with pytest.raises(WorkflowError, match="no input"):
        net.transition("count", count, {"word": words, "text": CORPUS}, stage_in={"a": Data("corpus")})
    with pytest.raises(BadValue, match="published data"):
        dumps(CORPUS)
    assert not net.transitions
    assert list(net.places) == ["words"]
    net.place("data:corpus", [1])
    with pytest.raises(WorkflowError, match="'data:corpus' is that of published data"):
        net.transition("count", count, {"word": take(words, 2), "text": CORPUS})
