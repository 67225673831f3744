"""Scheduling: which operations become one kernel, over which loops, in which order. ``plan.schedule`` is the entry."""

from .plan import Schedule, schedule
from .steps import LaunchStep, Step

__all__ = ["LaunchStep", "Schedule", "Step", "schedule"]
