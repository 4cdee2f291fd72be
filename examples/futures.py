"""Tasks without trio: an executor with the interface of concurrent.futures.

python examples/futures.py
"""

import math
from concurrent.futures import as_completed

from gspc_trio import Executor


def count_primes(first: int, last: int) -> int:
    """Return how many prime numbers there are from ``first`` up to ``last``."""
    return sum(map(is_prime, range(first, last)))


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def main() -> None:
    with Executor() as executor:
        future = executor.submit(is_prime, 1_000_003)
        print("1,000,003 is prime:", future.result())

        numbers = [97, 98, 99]
        print("prime or not:", dict(zip(numbers, executor.map(is_prime, numbers), strict=True)))

        counts = [executor.submit(count_primes, first, first + 10_000) for first in range(0, 50_000, 10_000)]
        total = sum(count.result() for count in as_completed(counts))
        print("prime numbers below 50,000:", total)

        small = executor.submit(count_primes, 0, 100)
        large = executor.submit(count_primes, 100, 1000)
        both = executor.submit(lambda *parts: sum(parts), small, large)  # begins when the two have ended
        print("prime numbers below 1,000:", both.result())

        try:
            executor.submit(math.sqrt, -1).result()
        except ValueError as error:
            print("no square root:", error)


if __name__ == "__main__":
    main()
