"""The admin API. All routes are on one router, which requires an administrator's key."""

from hlas.api.admin import (
    agent,
    audit,
    conversations,
    imports,
    knowledge,
    mcp,
    models,
    products,
    spend,
    tenants,
    unanswered,
    visitor_keys,
)
from hlas.api.admin.access import router

__all__ = [
    "agent",
    "audit",
    "conversations",
    "imports",
    "knowledge",
    "mcp",
    "models",
    "products",
    "router",
    "spend",
    "tenants",
    "unanswered",
    "visitor_keys",
]
