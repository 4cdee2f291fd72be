"""Searches for the tokens that a transition takes next: one small search per kind of transition.

``find()`` returns a binding, one token per input arc (several taken together are one batch token), or None
when no choice of tokens enables the transition; it changes no place. The tokens of a binding are removed by
the engine. A search over many tokens pauses, so that others have their turn, and goes on when it is asked
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.arcs import InputArc
from gspc_trio.workflow.calls import FunctionCall, KeyFunction
from gspc_trio.workflow.marking import AnyPlace, BagPlace, Chain, Entry, first_unused
from gspc_trio.workflow.tokens import Token, TokenCodec

Binding: TypeAlias = list[Token]

PAUSE_CHOICES = 256
"""After so many choices of tokens that do not enable a transition a search pauses."""

DRAWN_MAX = 64
"""So many choices are drawn before all are gone through to draw among those that enable a transition."""


Searching: TypeAlias = tuple[TaskId | str, ...]
"""Where a search has paused: in which activities, from the outermost on, and at which transition."""

PAUSE: Binding = []
"""Stands for a pause among bindings."""


class SearchPaused(Exception):
    """A search has looked at many choices of tokens, and has more to look at: it is to be asked again."""


class Bound(Struct, frozen=True):
    """An input arc and its place.

    Attributes:
        arc: the description.
        place: where its tokens are.
    """

    arc: InputArc
    place: AnyPlace


class SingleSearch:
    """For one input arc that takes one token, any."""

    def __init__(self, bound: Bound) -> None:
        self._place = bound.place

    def find(self) -> Binding | None:
        """Return the token that is there longest."""
        place = self._place
        return [place.first()] if place.tokens else None


class PlainSearch:
    """Without a condition: from each place the tokens that are there longest."""

    def __init__(self, bounds: Sequence[Bound], codec: TokenCodec) -> None:
        self._needs = tuple(
            (bound.place, bound.arc.least, bound.arc.most, bound.arc.is_batch) for bound in bounds
        )
        like = {bound.arc.like for bound in bounds} - {""}
        self._alike = tuple(bound.place for bound in bounds if {bound.arc.name, bound.arc.like} & like)
        self._codec = codec
        self._is_shared = shares_places(bounds)

    def find(self) -> Binding | None:
        """Return the first tokens of all places, if there are enough."""
        for place, least, _, _ in self._needs:
            if len(place.tokens) < least:
                return None
        binding: Binding = []
        used: list[Token] = []
        alike = min([len(place.tokens) for place in self._alike]) if self._alike else 0
        for place, least, most, is_batch in self._needs:
            if not is_batch and not self._is_shared:
                binding.append(place.first())
                continue
            if alike < most and place in self._alike:
                most = alike
            tokens = first_unused(place, used, most)
            if len(tokens) < least:
                return None
            if self._is_shared:
                used += tokens
            binding.append(self._codec.batch(tokens) if is_batch else tokens[0])
        return binding


def shares_places(bounds: Sequence[Bound]) -> bool:
    """Return whether two of the arcs come from the same place, so that they must not get the same token."""
    return len({id(bound.place) for bound in bounds}) < len(bounds)


def looks_at_part(bounds: Sequence[Bound], condition: Condition) -> bool:
    """Return whether a condition looks at a part of the arcs, and no other arc is from a place of these."""
    looked_at = set(condition.order) or {0}
    places = {id(bounds[arc].place) for arc in looked_at}
    others = {id(bound.place) for arc, bound in enumerate(bounds) if arc not in looked_at}
    return bool(others) and not places & others


class Condition:
    """A condition on a binding, looking only at the tokens that it names.

    Args:
        call: how it is evaluated; None: it always holds.
        codec: decodes tokens.
        failed: told of what it raises; returns whether to go on, as if it did not hold.

    Attributes:
        order: the arcs whose tokens it looks at.
    """

    def __init__(
        self, call: FunctionCall | None, codec: TokenCodec, failed: Callable[[Exception], bool]
    ) -> None:
        self._function = call.function if call is not None else None
        self.order: tuple[int, ...] | tuple[()] = call.order if call is not None else ()
        self._codec = codec
        self._decode = codec.decode
        self._failed = failed

    def of_arcs(self, arcs: Sequence[int]) -> Condition:
        """Return the same condition on a binding of these arcs alone, among them all that it looks at."""
        order = tuple(arcs.index(arc) for arc in self.order)
        call = None if self._function is None else FunctionCall(self._function, order)
        return Condition(call, self._codec, self._failed)

    def holds(self, binding: Sequence[Token]) -> bool:
        """Return whether the tokens can be taken together."""
        if self._function is None:
            return True
        decode = self._decode
        try:
            return bool(self._function(*[decode(binding[index]) for index in self.order]))
        except Exception as error:
            if not self._failed(error):
                raise
            return False


class FilterSearch:
    """One input arc and a condition: each token is looked at once, when it has arrived."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._unseen: deque[Token] = deque()
        self._found: Token | None = None

    def arrived(self, _arc: int, token: Token) -> None:
        """Note a token that has to be looked at."""
        self._unseen.append(token)

    def left(self, _arc: int, _token: Token) -> None:
        """A token that has gone is seen by its serial."""

    def find(self) -> Binding | None:
        """Return the next token for which the condition holds.

        Raises:
            SearchPaused: it is to be asked again.
        """
        if self._found is not None:
            if self._found.serial:
                return [self._found]
            self._found = None
        unseen = self._unseen
        for _ in range(PAUSE_CHOICES):
            if not unseen:
                return None
            token = unseen[0]
            holds = token.serial and self._condition.holds([token])
            unseen.popleft()  # only now: if the condition raised, the token is still to be looked at
            if holds:
                self._found = token
                return [token]
        raise SearchPaused


def _always(_: Sequence[Token]) -> bool:
    return True


class JoinSearch:
    """Several arcs of one token each, with a condition or a key: each combination is looked at once.

    A token is joined, in the order of arrival, with those that were looked at before it; the search stops
    at the first combination that holds and goes on from there when that one has been used.
    """

    def __init__(
        self,
        bounds: Sequence[Bound],
        condition: Condition | None,
        keys: Sequence[KeyFunction | None],
        codec: TokenCodec,
    ) -> None:
        self._holds: Callable[[Sequence[Token]], bool] = _always if condition is None else condition.holds
        self._codec = codec
        self._keys = tuple(keys) or (None,) * len(bounds)
        self._is_shared = shares_places(bounds)
        self._is_plain = not self._is_shared and not keys
        self._unseen: deque[tuple[int, Token]] = deque()
        self._all = [Chain() for _ in bounds]
        self._by_key: list[dict[object, Chain]] = [{} for _ in bounds]
        self._entries: list[dict[int, tuple[Entry, Entry | None]]] = [{} for _ in bounds]
        self._found: Binding | None = None
        self._combinations: Iterator[Binding] | None = None
        self._joining: tuple[int, Token, object]
        self._choices = 0

    def arrived(self, arc: int, token: Token) -> None:
        """Note a token that has to be joined with the others."""
        self._unseen.append((arc, token))

    def left(self, arc: int, token: Token) -> None:
        """Forget a token that has gone."""
        entries = self._entries[arc].pop(token.serial, None)
        if entries is None:
            return
        entry, keyed = entries
        self._all[arc].remove(entry)
        if keyed is not None:
            chain = self._by_key[arc][keyed.key]
            chain.remove(keyed)
            if chain.first is None:
                del self._by_key[arc][keyed.key]

    def find(self) -> Binding | None:
        """Return the next combination that holds.

        Raises:
            SearchPaused: it is to be asked again.
        """
        if self._found is not None and not all(token.serial for token in self._found):
            self._found = None
        while self._found is None:
            if self._combinations is not None:
                self._found = self._next_combination()
                continue
            if not self._unseen:
                return None
            arc, token = self._unseen[0]
            if token.serial:
                self._join(arc, token)  # may raise: it stays to be looked at
            self._unseen.popleft()
            if self._is_turn_over():
                raise SearchPaused
        return self._found

    def _join(self, arc: int, token: Token) -> None:
        """Join a token with those that were looked at before it, and let later ones be joined with it."""
        if self._is_plain and (only := self._only(arc, token)) is not None:
            if only and self._holds(only):
                self._found = only
            self._entries[arc][token.serial] = self._all[arc].append(token, None), None
            return
        key = self._key_of(arc, token)
        self._joining = (arc, token, key)
        self._combinations = self._joined(arc, token, key)
        self._admit(arc, token, key)

    def _only(self, fixed: int, token: Token) -> Binding | None:
        """Return the only combination with a token, [] if there is none, None if there are several."""
        chosen: Binding = []
        for arc, chain in enumerate(self._all):
            entry = chain.first
            if arc == fixed:
                chosen.append(token)
            elif entry is None:
                return []
            elif entry is not chain.last:
                return None
            else:
                chosen.append(entry.token)
        return chosen

    def _next_combination(self) -> Binding | None:
        assert self._combinations is not None
        try:
            found = next(self._combinations, None)
        except Exception:  # of the condition: look at the token's combinations once more next time
            self._combinations = self._joined(*self._joining)
            raise
        if found is PAUSE:
            raise SearchPaused
        if found is None:
            self._combinations = None
        return found

    def _is_turn_over(self) -> bool:
        self._choices += 1
        return self._choices % PAUSE_CHOICES == 0

    def _key_of(self, arc: int, token: Token) -> object:
        function = self._keys[arc]
        if function is None:
            return None
        key = function(self._codec.decode(token))
        hash(key)
        return key

    def _admit(self, arc: int, token: Token, key: object) -> None:
        """Let tokens that come later be joined with this one."""
        entry = self._all[arc].append(token, key)
        keyed = None
        if self._keys[arc] is not None:
            keyed = self._by_key[arc].setdefault(key, Chain()).append(token, key)
        self._entries[arc][token.serial] = (entry, keyed)

    def _joined(self, fixed: int, token: Token, key: object) -> Iterator[Binding]:
        """Yield every combination of ``token`` on arc ``fixed`` with older tokens that holds, and pauses."""
        chosen = [token] * len(self._keys)  # the others are replaced before anybody looks at them
        return self._extended(0, fixed, chosen, self._keys[fixed] is not None, key)

    def _extended(
        self, arc: int, fixed: int, chosen: list[Token], has_key: bool, key: object
    ) -> Iterator[Binding]:
        """Yield every choice for the arcs from ``arc`` on, until a token chosen before has gone."""
        if arc == len(chosen):
            if self._holds(chosen):
                yield list(chosen)
            elif self._is_turn_over():
                yield PAUSE
            return
        if arc == fixed:
            yield from self._extended(arc + 1, fixed, chosen, has_key, key)
            return
        is_keyed = self._keys[arc] is not None
        if is_keyed and has_key:
            chain = self._by_key[arc].get(key)
            entry = chain.first if chain is not None else None
        else:
            entry = self._all[arc].first
        while entry is not None:
            token = entry.token
            if not (self._is_shared and self._is_chosen(token, arc, fixed, chosen)):
                chosen[arc] = token
                inner_key = key if has_key or not is_keyed else entry.key
                yield from self._extended(arc + 1, fixed, chosen, has_key or is_keyed, inner_key)
                if not chosen[fixed].serial or not all(before.serial for before in chosen[:arc]):
                    return
            entry = entry.successor()

    @staticmethod
    def _is_chosen(token: Token, arc: int, fixed: int, chosen: list[Token]) -> bool:
        return token is chosen[fixed] or any(token is other for other in chosen[:arc])


class PartSearch:
    """A condition that looks at some of the arcs: a search among these, and of the others the first tokens.

    Args:
        bounds: all arcs, each of one token; those that the condition looks at have places of their own.
        condition: looks at fewer arcs than there are.
        codec: decodes tokens.
    """

    def __init__(self, bounds: Sequence[Bound], condition: Condition, codec: TokenCodec) -> None:
        arcs = sorted(set(condition.order)) or [0]
        others = [arc for arc in range(len(bounds)) if arc not in arcs]
        self._local = {arc: index for index, arc in enumerate(arcs)}
        inner = condition.of_arcs(arcs)
        chosen = [bounds[arc] for arc in arcs]
        self._search = FilterSearch(inner) if len(arcs) == 1 else JoinSearch(chosen, inner, (), codec)
        self._others = PlainSearch([bounds[arc] for arc in others], codec)
        both = [*arcs, *others]
        self._order = tuple(both.index(arc) for arc in range(len(bounds)))

    def arrived(self, arc: int, token: Token) -> None:
        """Note a token that has to be looked at."""
        if arc in self._local:
            self._search.arrived(self._local[arc], token)

    def left(self, arc: int, token: Token) -> None:
        """Forget a token that has gone."""
        if arc in self._local:
            self._search.left(self._local[arc], token)

    def find(self) -> Binding | None:
        """Return the next tokens for which the condition holds.

        Raises:
            SearchPaused: it is to be asked again.
        """
        others = self._others.find()
        if others is None:  # as elsewhere, a condition is computed only if there is a token for each arc
            return None
        found = self._search.find()
        if found is None:
            return None
        both = [*found, *others]
        return [both[index] for index in self._order]


class BatchSearch:
    """A condition on arcs of which some take several tokens: the front of those places, and any other token.

    It is searched anew whenever a place has changed; arcs that take one token should have few to choose from.
    """

    def __init__(
        self, bounds: Sequence[Bound], condition: Condition, codec: TokenCodec, mark: Callable[[], None]
    ) -> None:
        self._bounds = tuple(bounds)
        self._condition = condition
        self._codec = codec
        self._mark = mark
        self._search: Iterator[Binding | None] | None = None

    def arrived(self, _arc: int, _token: Token) -> None:
        """Search anew; the place wakes up the transition."""
        self._search = None

    def left(self, _arc: int, _token: Token) -> None:
        """Search anew: another front may enable the transition."""
        self._search = None
        self._mark()

    def find(self) -> Binding | None:
        """Return the first choice, in the order of the arcs, for which the condition holds.

        Raises:
            SearchPaused: it is to be asked again.
        """
        search, self._search = self._search or self._extended([], []), None
        for looked_at, found in enumerate(search, 1):
            if found is not None:
                return found
            if looked_at >= PAUSE_CHOICES:
                self._search = search
                raise SearchPaused
        return None

    def _extended(self, binding: Binding, used: list[Token]) -> Iterator[Binding | None]:
        """Yield each choice for which the condition holds, and None for each other."""
        if len(binding) == len(self._bounds):
            yield list(binding) if self._condition.holds(binding) else None
            return
        bound = self._bounds[len(binding)]
        for tokens in self._choices(bound, used):
            one = self._codec.batch(tokens) if bound.arc.is_batch else tokens[0]
            yield from self._extended([*binding, one], [*used, *tokens])

    def _choices(self, bound: Bound, used: list[Token]) -> Iterator[list[Token]]:
        if not bound.arc.is_batch:
            taken = {id(token) for token in used}
            yield from ([token] for token in bound.place if id(token) not in taken)
            return
        tokens = first_unused(bound.place, used, bound.arc.most)
        if len(tokens) >= bound.arc.least:
            yield tokens


class Chance:
    """Random choices that depend on a seed and the number of firings alone, so they can be made again.

    Attributes:
        seed: see above.
        firing: how often transitions have fired.
    """

    def __init__(self, seed: int, firing: int = 0) -> None:
        self.seed = seed
        self.firing = firing
        self._random = Random()
        self.begin()

    def begin(self) -> None:
        """The next transition is to be chosen."""
        self._random.seed(f"{self.seed} {self.firing}")

    def draw(self, count: int) -> int:
        """Return a number below ``count``, each with the same chance."""
        return self._random.randrange(count) if count > 1 else 0


class DrawnSearch:
    """Draws one of the choices that another search finds the first of, each with the same chance.

    Args:
        inner: says whether there is any choice.
        bounds, condition, keys, codec: see :func:`search_for`; no arc takes several tokens.
        chance: draws.
    """

    def __init__(
        self,
        inner: Search,
        bounds: Sequence[Bound],
        condition: Condition | None,
        keys: Sequence[KeyFunction | None],
        codec: TokenCodec,
        chance: Chance,
    ) -> None:
        self.inner = inner
        self._places = tuple(bound.place for bound in bounds)
        self._condition = condition
        self._keys = tuple((index, key) for index, key in enumerate(keys) if key is not None)
        self._codec = codec
        self._chance = chance
        self._is_shared = shares_places(bounds)

    def find(self) -> Binding | None:
        """Return one of all choices that enable the transition.

        Raises:
            SearchPaused: it is to be asked again.
        """
        found = self.inner.find()
        bags = [place.bag for place in self._places if isinstance(place, BagPlace)]
        if found is None or len(bags) < len(self._places) or all(len(bag) == 1 for bag in bags):
            return found
        for _ in range(DRAWN_MAX):
            drawn = [bag[self._chance.draw(len(bag))] for bag in bags]
            if self._fits(drawn):
                return drawn
        every = [list(drawn) for drawn in product(*bags) if self._fits(drawn)]
        return every[self._chance.draw(len(every))]

    def _fits(self, drawn: Sequence[Token]) -> bool:
        if self._is_shared and len(set(map(id, drawn))) < len(drawn):
            return False
        decode = self._codec.decode
        if len({key(decode(drawn[index])) for index, key in self._keys}) > 1:
            return False
        return self._condition is None or self._condition.holds(drawn)


WatchingSearch: TypeAlias = FilterSearch | JoinSearch | PartSearch | BatchSearch
"""Those that have to be told of every token that comes and goes."""

Search: TypeAlias = SingleSearch | PlainSearch | WatchingSearch | DrawnSearch


def search_for(
    bounds: Sequence[Bound],
    condition: Condition | None,
    keys: Sequence[KeyFunction | None],
    codec: TokenCodec,
    mark: Callable[[], None],
    chance: Chance | None = None,
) -> Search:
    """Return the search that fits a transition's arcs, condition and keys; it draws if there is a chance."""
    if chance is not None and not any(bound.arc.is_batch for bound in bounds):
        inner = search_for(bounds, condition, keys, codec, mark)
        return DrawnSearch(inner, bounds, condition, keys, codec, chance)
    if condition is None and not keys:
        arc = bounds[0].arc
        return (
            SingleSearch(bounds[0]) if len(bounds) == 1 and not arc.is_batch else PlainSearch(bounds, codec)
        )
    if condition is not None and any(bound.arc.is_batch for bound in bounds):
        return BatchSearch(bounds, condition, codec, mark)
    if condition is not None and len(bounds) == 1:
        return FilterSearch(condition)
    if condition is not None and not keys and looks_at_part(bounds, condition):
        return PartSearch(bounds, condition, codec)
    return JoinSearch(bounds, condition, keys, codec)
