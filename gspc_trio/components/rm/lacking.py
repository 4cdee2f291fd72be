"""Requests for several resources that wait; those that cannot be met yet are not tried at every release.

A request that lacks resources of a class is put aside until so many of the class are free that it may have
what it lacks; a release looks at those alone whose number it has reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from gspc_trio.components.rm.parts import ClassQueue, Vertex, Want


class Lacking:
    """Requests for several resources.

    Attributes:
        ready: those that lack nothing as far as is known.
    """

    def __init__(self) -> None:
        self.ready: dict[Want, None] = {}
        self._aside: dict[Want, tuple[ClassQueue, int]] = {}
        self._heaps: dict[ClassQueue, list[tuple[int, int, Want]]] = {}
        """By class: (how many must be free, number, who); an entry is stale if ``_aside`` says else."""

    def __contains__(self, want: Want) -> bool:
        return want in self.ready or want in self._aside

    def wake_all(self) -> None:
        """Each of them is worth a try."""
        self.ready.update(dict.fromkeys(self._aside))
        self._aside.clear()
        self._heaps.clear()

    def check(self, is_open: Callable[[Vertex], bool], resources: Iterable[Vertex]) -> None:
        """Assert that nobody is put aside who could be given all, and that all of those are found again."""
        assert not self.ready.keys() & self._aside.keys()
        there = Counter(vertex.queue for vertex in resources if is_open(vertex)) if self._aside else Counter()
        for want, (queue, free) in self._aside.items():
            assert (free, want.number, want) in self._heaps[queue], f"{want.form.shape}: put aside for ever"
            counts = want.form.counts.items()
            assert any(there[each] < count for each, count in counts), f"{want.form.shape}: put aside"

    def wake(self, want: Want) -> None:
        """The want is worth a try."""
        self._aside.pop(want, None)
        self.ready[want] = None

    def forget(self, want: Want) -> None:
        """The want waits no more."""
        self._aside.pop(want, None)
        self.ready.pop(want, None)

    def put_aside(self, want: Want, queue: ClassQueue, free: int) -> None:
        """The want is not worth a try before so many resources of the class are free."""
        self.ready.pop(want, None)
        self._aside[want] = (queue, free)
        heap = self._heaps.setdefault(queue, [])
        heappush(heap, (free, want.number, want))
        if len(heap) > 64 and len(heap) > 4 * len(self._aside):
            heap[:] = [entry for entry in heap if self._aside.get(entry[2]) == (queue, entry[0])]
            heapify(heap)

    def look(self) -> None:
        """Find those for whom enough may be free now."""
        for queue, heap in self._heaps.items():
            while heap and heap[0][0] <= queue.free:
                free, _, want = heappop(heap)
                if self._aside.get(want) == (queue, free):
                    self.wake(want)
