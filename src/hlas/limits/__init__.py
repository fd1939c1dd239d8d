"""Sliding-window limits: what they are (rules), where they are kept.

`hlas.limits.redis` is loaded by those who have one: the client takes half a second.
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
