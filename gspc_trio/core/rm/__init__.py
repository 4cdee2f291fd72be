"""The resource manager: who holds which resource (GSPC19 2.4; section 3 of the house plan).

:mod:`~gspc_trio.core.rm.machine` takes the events; :mod:`~gspc_trio.core.rm.pool` knows what is free,
``change`` adds and removes, ``jobs`` keeps what is wanted and held, ``search`` and ``gather`` find
resources, ``serve`` says whose turn it is, ``lacking`` who is worth a try, ``recall`` and ``reserve`` keep
others from starving, ``lapse`` ends grants whose job or resources are gone, ``explain`` tells people.
"""

from gspc_trio.core.rm.events import Added, Coming, JobGone, JobJoined, Removed, Settled
from gspc_trio.core.rm.machine import ResourceManager
from gspc_trio.core.rm.placing import Offer, Placement
from gspc_trio.core.rm.state import Limits

__all__ = [
    "Added",
    "Coming",
    "JobGone",
    "JobJoined",
    "Limits",
    "Offer",
    "Placement",
    "Removed",
    "ResourceManager",
    "Settled",
]
