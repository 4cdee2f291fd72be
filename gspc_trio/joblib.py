"""A backend of joblib on a run-time system: ``register()``, then ``joblib.parallel_config("gspc")``."""

from __future__ import annotations

from gspc_trio.core.imports import missing_extra

try:
    from gspc_trio.integrations.joblib_backend import register
except ModuleNotFoundError as _error:
    if _error.name != "joblib":
        raise
    raise ImportError(missing_extra("gspc_trio.joblib", "joblib", "joblib"), name="joblib") from _error

__all__ = ["register"]
