"""Worker processes: started when there is work, joined when there is none, talking over pipes."""

from __future__ import annotations

from flambeau_runtime.workers.pool import Pool, Request, WorkerFailed

__all__ = ["Pool", "Request", "WorkerFailed"]
