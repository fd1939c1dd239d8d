"""The admin API. All routes are on one router, which requires an administrator's key."""

from hlas.api.admin import (
    audit,
    conversations,
    knowledge,
    mcp,
    products,
    spend,
    tenants,
    visitor_keys,
)
from hlas.api.admin.access import router

__all__ = [
    "audit",
    "conversations",
    "knowledge",
    "mcp",
    "products",
    "router",
    "spend",
    "tenants",
    "visitor_keys",
]
