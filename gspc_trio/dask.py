"""A scheduler of Dask on a run-time system: ``dask.config.set(scheduler=gspc_trio.dask.get)``."""

from __future__ import annotations

from gspc_trio.core.imports import missing_extra

try:
    from gspc_trio.integrations.dask_scheduler import get
except ModuleNotFoundError as _error:
    if _error.name != "dask":
        raise
    raise ImportError(missing_extra("gspc_trio.dask", "dask", "dask"), name="dask") from _error

__all__ = ["get"]
