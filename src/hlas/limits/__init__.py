"""Sliding-window rate limits, counted in memory or in Redis.

`hlas.limits.redis` is imported only when it is used: importing the client takes half a second.
"""

from hlas.limits.memory import MemoryLimiter
from hlas.limits.rules import Check, Limit, Limiter, Refusal, Rule, Scope

__all__ = [
    "Check",
    "Limit",
    "Limiter",
    "MemoryLimiter",
    "Refusal",
    "Rule",
    "Scope",
]
