"""Errors of the resource manager: each names what is wrong; the state is unchanged when one is raised."""

from __future__ import annotations

from gspc_trio.core.machine import IllegalEvent


class RmError(IllegalEvent):
    """The resource manager cannot take this event."""


class UnknownJob(RmError):
    """No job of this id has joined, or it has gone."""


class DuplicateJob(RmError):
    """A job of this id has joined already."""


class BadWeight(RmError):
    """A job's weight is a number more than 0."""


class BadDemand(RmError):
    """A demand contradicts itself: negative credit, an empty shape, a grant seen that was never given."""


class TooManyShapes(RmError):
    """A job asks for more shapes at once than are allowed."""


class UnknownGrant(RmError):
    """No grant of this id was ever given."""


class DoubleRelease(RmError):
    """The grant, or this part of it, has been given back already."""


class NotYours(RmError):
    """The grant belongs to another job."""


class UnknownResource(RmError):
    """No resource of this id is there."""


class DuplicateResource(RmError):
    """A resource of this id is there already, or named twice."""


class CyclicResources(RmError):
    """Resources are each other's ancestors."""


class AddClashes(RmError):
    """A resource to be added would hang below one that is held."""


class ResourceHeld(RmError):
    """A resource to be removed is in use, and the policy says refuse."""


class BadPlacement(RmError):
    """No placement of this name."""


class BadPolicy(RmError):
    """No remove policy of this name."""
