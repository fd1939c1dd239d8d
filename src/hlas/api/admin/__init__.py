"""What administrators call with a key. One router, and no way onto it without a key."""

from hlas.api.admin import audit, conversations, knowledge, tenants, visitor_keys
from hlas.api.admin.access import router

__all__ = ["audit", "conversations", "knowledge", "router", "tenants", "visitor_keys"]
