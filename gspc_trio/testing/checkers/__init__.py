"""Invariants: what must hold in every simulated run, as folds of events and actions.

The checkers know nothing of the machines' insides. They are told of each event with the actions that came of
it, of tasks that begin and end in compute, and of processes that end; they raise :class:`Broken`.
"""
