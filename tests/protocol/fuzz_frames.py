"""Hostile frames by the million: whatever comes, it is messages of ours or one clear refusal.

    python -m tests.protocol.fuzz_frames [--frames 10000000] [--seed 1] [--processes 2]

The corpus is made up: a frame of each kind of message. Each frame of a run is one of them with bytes or parts
changed, cut, doubled or put elsewhere. The same seed makes the same frames.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
import types
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.core.machine import Tick
from gspc_trio.protocol import handshake
from gspc_trio.protocol.codec import Codec, DecodeError
from gspc_trio.protocol.envelope import Beat, Call, Failure, Reply
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.session import Session
from gspc_trio.protocol.signals import BeginSession, Dead, Garbled, HandshakeReceived, ItemsReceived
from tests.protocol.support import dialer, listener, open_pair

LIMITS = Limits()
NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 127, 128, 2**31, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf"),
    "", "a", "r1.core0", "\udcff", "x" * 300, b"", b"\x00", b"\xff" * 300, (), ((),), {}, {"a": 1}, {1: 2},
    [[[[[[[[[[[[]]]]]]]]]]]], msgpack.ExtType(1, b"x"), msgpack.Timestamp(1),
)  # fmt: skip


def sample(kind: Any, source: random.Random) -> Any:
    """Return some value of a type."""
    simple: dict[Any, Any] = {
        str: "r1.core0", bytes: b"\x93\x01", int: 3, bool: True, float: 1.5, Any: {"a": [1]},
        type(None): None,
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return sample(source.choice(arguments), source)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(sample(arguments[0], source) for _ in range(source.randrange(3)))
    if origin is tuple:
        return tuple(sample(argument, source) for argument in arguments)
    if origin is frozenset:
        return frozenset([sample(arguments[0], source)])
    if origin is dict:
        return {sample(arguments[0], source): sample(arguments[1], source)}
    if issubclass(kind, Enum):
        return source.choice(list(kind))
    hints = get_type_hints(kind)
    return kind(*[sample(hints[name], source) for name in kind.__match_args__])


def corpus(source: random.Random, codec: Codec) -> list[bytes]:
    """Return a frame of each kind of message, some in envelopes."""
    messages = [sample(kind, source) for kind in WIRE_TYPES]
    frames = [codec.encode_batch([message]) for message in messages]
    envelopes = [Beat(), Failure(1, "kind", "text"), Call(1, messages[0]), Reply(1, messages[0])]
    return [*frames, *(codec.encode_batch([item]) for item in envelopes), codec.encode_batch(messages)]


def mutated(frame: bytes, frames: list[bytes], source: random.Random) -> bytes:
    """Return a frame with something wrong, mostly."""
    how = source.randrange(7)
    place = source.randrange(len(frame) + 1)
    if how == 0:
        return frame[:place] + bytes((source.randrange(256),)) + frame[place + 1 :]
    if how == 1:
        return frame[:place]
    if how == 2:
        return frame[:place] + source.randbytes(source.randrange(1, 9)) + frame[place:]
    if how == 3:
        other = source.choice(frames)
        return frame[:place] + other[source.randrange(len(other)) :]
    if how == 4:
        return source.randbytes(source.randrange(200))
    try:
        tree = msgpack.unpackb(frame, strict_map_key=False, unicode_errors="surrogatepass")
        bytes_ = msgpack.packb(_change(tree, source), unicode_errors="surrogatepass")
        return bytes(bytes_)
    except (ValueError, TypeError, OverflowError):
        return frame[place:]


def _change(tree: Any, source: random.Random) -> Any:
    """Return a tree with one part, however deep, replaced, dropped or doubled."""
    if not isinstance(tree, list | dict) or not tree or source.random() < 0.15:
        return source.choice(NASTY)
    tree = tree.copy()
    key = source.choice(list(tree)) if isinstance(tree, dict) else source.randrange(len(tree))
    how = source.randrange(8)
    if how == 0 and isinstance(tree, list):
        del tree[key]
    elif how == 1 and isinstance(tree, list):
        tree.insert(key, tree[key])
    else:
        tree[key] = _change(tree[key], source)
    return tree


def fuzz(frames: int, seed: int, seconds: float = float("inf")) -> dict[str, int]:
    """Give so many frames, or for so long, to codecs, open sessions and handshakes; count what came of them.

    Raises:
        Anything but a refusal: then there is a defect. The note says which frame it was.
    """
    source, codec = random.Random(seed), wire_codec(limits=LIMITS)
    known = corpus(source, codec)
    counts = {"messages": 0, "refused": 0, "ended": 0, "handshakes": 0}
    _, session = open_pair(LIMITS)
    hellos = [handshake.encode_hello(handshake.Hello(1, 1, "job", "j", b"n" * 32, "i", "rts", 5)),
              handshake.encode_proof(b"p" * 32)]  # fmt: skip
    end = time.monotonic() + seconds
    for number in range(frames):
        frame = mutated(source.choice(known), known, source)
        try:
            if number % 16 == 0:
                counts["handshakes"] += 1
                shake(mutated(source.choice(hellos), hellos, source), source)
            try:
                items = codec.decode_batch(frame)
            except DecodeError as error:
                counts["refused"] += 1
                text = str(error)
                if "\n" in text or len(text) > 400:
                    raise AssertionError(f"this is not one line: {text}") from error
                actions = session.handle(Garbled(text), 0.0) if number % 64 == 0 else []
            else:
                counts["messages"] += 1
                actions = session.handle(ItemsReceived(items), 0.0)
            session.check()
            if any(isinstance(action, Dead) for action in actions):
                counts["ended"] += 1
                _, session = open_pair(LIMITS)
        except BaseException as error:
            error.add_note(f"seed {seed}, frame {number}: {frame.hex()}")
            raise
        if number % 1024 == 0 and time.monotonic() > end:
            break
    return counts


def shake(data: bytes, source: random.Random) -> None:
    """Give hostile bytes to a new session instead of the handshake: it never opens."""
    session = Session(source.choice((dialer, listener))(), LIMITS)
    session.handle(BeginSession(), 0.0)
    for _ in range(2):
        actions = session.handle(HandshakeReceived(data), 0.0)
        session.check()
        assert not any(type(action).__name__ == "Opened" for action in actions), "it let a stranger in"
        if any(isinstance(action, Dead) for action in actions):
            return
    session.handle(Tick(), 100.0)


def main() -> None:
    """Fuzz in several processes and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    share = options.frames // options.processes
    seeds = range(options.seed, options.seed + options.processes)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for counts in pool.starmap(fuzz, [(share, seed) for seed in seeds]):
            print(counts)


if __name__ == "__main__":
    main()
