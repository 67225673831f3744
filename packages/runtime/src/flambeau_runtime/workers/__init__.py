"""Worker processes: started when there is work, joined when there is none, talking over pipes."""

from __future__ import annotations

from flambeau_runtime.workers.pool import Answer, Pool, Request, WorkerFailed

__all__ = ["Answer", "Pool", "Request", "WorkerFailed"]
