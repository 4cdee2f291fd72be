"""Functions of tasks that publish data and read it by its name."""

from gspc_trio.core.published import publish, read_published


def train(steps: int) -> int:
    """Publish a model that depends on published settings, twice."""
    rate = read_published("settings")["rate"]
    publish("model", "a first one")
    publish("model", [rate * step for step in range(steps)])
    publish("raw", b"raw" * steps)
    return steps


def predict(step: int) -> tuple[float, bytes]:
    """Read what another task has published."""
    return read_published("model")[step], bytes(read_published("raw")[:3])


def take(model: list[float]) -> float:
    """Take what was published as an argument."""
    return model[-1]


def miss(name: str) -> object:
    """Read what is not there."""
    return read_published(name)


def publish_steps(number: int) -> int:
    """Publish so many values under one name."""
    for step in range(1, number + 1):
        publish("step", step)
    return number
