"""Scheduling: which operations become one kernel, over which loops, in which order. ``plan.schedule`` is the entry."""

from .plan import Schedule, Step, schedule

__all__ = ["Schedule", "Step", "schedule"]
