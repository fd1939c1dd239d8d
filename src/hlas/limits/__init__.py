"""Sliding-window limits: what they are (rules), where they are kept (memory, redis)."""

from hlas.limits.memory import MemoryLimiter
from hlas.limits.redis import RedisLimiter
from hlas.limits.rules import Check, Limit, Limiter, Refusal, Rule, Scope

__all__ = [
    "Check",
    "Limit",
    "Limiter",
    "MemoryLimiter",
    "RedisLimiter",
    "Refusal",
    "Rule",
    "Scope",
]
