"""A place that holds many values of which few are tokens, beside a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.bulk.stock import PackedStock, Stock
from gspc_trio.workflow.marking import StockedPlace
from gspc_trio.workflow.tokens import Token, TokenCodec

CODEC = TokenCodec(dumps, loads)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("put", "values", "encoded", "packed", "mixed", "range", "remove", "ranges", "take")),
        st.integers(0, 3000),
    ),
    max_size=15,
)


def stock_of(what: str, begin: int, count: int) -> Stock:
    """Return a stock of numbers in one of the ways in which values come."""
    numbers = range(begin, begin + count)
    if what == "packed":
        return PackedStock(count, lambda: (list(numbers), {}))
    if what == "mixed":
        encoded = {index: dumps(number) for index, number in enumerate(numbers) if index % 3 == 0}
        values = [None if index in encoded else number for index, number in enumerate(numbers)]
        return PackedStock(count, lambda: (values, encoded))
    return (
        Stock(list(map(dumps, numbers)), True)
        if what == "encoded"
        else Stock(numbers if what == "range" else list(numbers))
    )


@given(STEPS)
def test_it_is_a_list_whatever_is_a_token_already(steps: list[tuple[str, int]]) -> None:
    place, plain, last = StockedPlace(Place("items")), list[int](), 0
    for what, count in steps:
        if what == "put":
            place.put(Token(last))
            plain.append(last)
            last += 1
        elif what == "remove":
            for _ in range(min(count, len(plain)) if not place.is_ranged else 0):
                token = place.first()
                place.remove(token)
                assert CODEC.decode(token) == plain.pop(0)
        elif what == "ranges":
            place.take_in_ranges()
        elif what == "take":
            count = min(count, len(plain)) if place.is_ranged else 0
            if count:
                stock = place.take_stock(count, CODEC)
                values, are_encoded = stock.column(CODEC)
                opened = [loads(one) if are_encoded else one for one in values]  # type: ignore[arg-type]
                assert opened == plain[:count]
                assert [
                    CODEC.decode(stock.part(1, count).token(index)) for index in range(count - 1)
                ] == plain[1:count]
                del plain[:count]
        else:
            place.put_stock(stock_of(what, last, count))
            plain += range(last, last + count)
            last += count
        assert len(place) == len(plain)
        assert bool(place.tokens) == bool(plain) or place.is_ranged
        assert place.values(CODEC) == plain
    assert [CODEC.decode(token) for token in place] == plain
    assert [CODEC.decode(token) for token in reversed(place)] == plain[::-1]
    assert all(CODEC.decode(token) in set(plain) for token in place.samples(4))
