"""A coordinator of a memory layer whose servers a test answers for."""

from __future__ import annotations

from typing import Any

from gspc_trio.iml import messages as x
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.events import Answered, AnswerRequest, Asked, CallServer, ClientUp, RefuseRequest, ServerUp

CLIENT, OTHER = 20, 21
JOB = "j1"


class Layer:
    """A coordinator whose servers do at once what they are told, unless the test answers for them."""

    def __init__(self, *hosts: str) -> None:
        self.machine = Coordinator("i")
        self.asks = 100
        for link, host in enumerate(hosts):
            hello = x.ServerHello(host, f"ws://{host}:1", "", 1000)
            joined = x.ServerJoined(link, f"s{link + 1}")
            assert self.feed(ServerUp(link, 0, hello)) == [AnswerRequest(0, joined)]
        for client, job in ((CLIENT, JOB), (OTHER, "j2")):
            assert self.feed(ClientUp(client, 0, x.JoinLayer(job))) == [AnswerRequest(0, x.LayerJoined("i"))]

    def feed(self, event: Any) -> list[Any]:
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        return actions

    def ask(self, request: Any, client: int = CLIENT) -> list[Any]:
        """Ask; return the actions. Replies are to ask 0, for short."""
        return self.feed(Asked(client, 0, request))

    def answer(self, actions: list[Any], kind: str = "", message: str = "") -> list[Any]:
        """Answer every call among the actions; return what follows."""
        after = []
        for action in actions:
            if isinstance(action, CallServer):
                after += self.feed(Answered(action.call, kind, message))
        return after

    def do(self, request: Any, client: int = CLIENT) -> Any:
        """Ask, let the servers do all, and return the answer's message, or the refusal."""
        actions = self.ask(request, client)
        actions += self.answer(actions)
        (answer,) = [action for action in actions if isinstance(action, AnswerRequest | RefuseRequest)]
        return answer.message if isinstance(answer, AnswerRequest) else answer

    def refusal(self, request: Any, client: int = CLIENT) -> tuple[str, str]:
        answer = self.do(request, client)
        assert isinstance(answer, RefuseRequest), answer
        return answer.kind, answer.message
