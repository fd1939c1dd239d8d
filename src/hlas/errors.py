"""Every error as a class: status, stable code, and as docstring the message that users read."""

from collections.abc import Sequence
from typing import ClassVar, TypedDict


class HlasError(Exception):
    """Something went wrong on our side."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, *, headers: dict[str, str] | None = None, **extra: object) -> None:
        super().__init__(self.code)
        self.headers = headers or {}
        self.extra = extra

    @property
    def message(self) -> str:
        return " ".join((self.__doc__ or "").split())

    def body(self, request_id: str) -> dict[str, object]:
        return {
            "detail": self.code,
            "message": self.message,
            "request_id": request_id,
            **self.extra,
        }


class InvalidHttp(HlasError):
    """This is not a valid HTTP request."""

    status = 400
    code = "invalid_http"

    def __init__(self) -> None:
        super().__init__(headers={"Connection": "close"})


class HeadersTooLarge(HlasError):
    """The request's headers are too large."""

    status = 431
    code = "headers_too_large"

    def __init__(self) -> None:
        super().__init__(headers={"Connection": "close"})


class Fault(TypedDict):
    """The location of a problem in a request, and its type."""

    loc: list[str | int]
    type: str


class InvalidRequest(HlasError):
    """The request is invalid; `errors` lists the location and type of each problem."""

    status = 422
    code = "invalid_request"

    def __init__(self, errors: list[Fault]) -> None:
        super().__init__(errors=errors)
        self.errors = errors

    @classmethod
    def at(cls, *loc: str | int, kind: str) -> "InvalidRequest":
        return cls([{"loc": list(loc), "type": kind}])


class TextTooLong(HlasError):
    """The text is longer than this service accepts."""

    status = 422
    code = "text_too_long"


class InvalidText(HlasError):
    """The text is empty."""

    status = 400
    code = "invalid_text"


class InvalidIdempotencyKey(HlasError):
    """Idempotency-Key must be one header of 1 to 255 visible ASCII characters."""

    status = 400
    code = "invalid_idempotency_key"


class IdempotencyKeyConflict(HlasError):
    """This Idempotency-Key was already used with a different payload."""

    status = 409
    code = "idempotency_key_conflict"


class IdempotencyInProgress(HlasError):
    """A request with this Idempotency-Key is still being processed; try again shortly."""

    status = 409
    code = "idempotency_in_progress"

    def __init__(self) -> None:
        super().__init__(headers={"Retry-After": "1"})


class UserMessageNotFound(HlasError):
    """This conversation has no visitor's message to answer."""

    status = 400
    code = "user_message_not_found"


class NotFound(HlasError):
    """There is nothing at this address."""

    status = 404
    code = "not_found"


class MethodNotAllowed(HlasError):
    """This address does not support that method."""

    status = 405
    code = "method_not_allowed"


class PayloadTooLarge(HlasError):
    """The request body is larger than this service accepts."""

    status = 413
    code = "payload_too_large"

    def __init__(self) -> None:
        super().__init__(headers={"Connection": "close"})


class RequestTimeout(HlasError):
    """The request body did not arrive in time."""

    status = 408
    code = "request_timeout"

    def __init__(self) -> None:
        super().__init__(headers={"Connection": "close"})


class UnsupportedMediaType(HlasError):
    """Send the body as plain UTF-8 JSON: content type application/json and no content encoding."""

    status = 415
    code = "unsupported_media_type"


class RateLimited(HlasError):
    """Too many requests; wait for the number of seconds in Retry-After."""

    status = 429
    code = "rate_limited"

    def __init__(self, limit_scope: str, headers: dict[str, str]) -> None:
        super().__init__(headers=headers)
        self.limit_scope = limit_scope


class Unavailable(HlasError):
    """The service is temporarily unavailable; try again shortly."""

    status = 503
    code = "unavailable"

    def __init__(self, retry_after: int = 1) -> None:
        super().__init__(headers={"Retry-After": str(retry_after)})


class InvalidOrigin(HlasError):
    """The request needs exactly one valid Origin header."""

    status = 400
    code = "invalid_origin"


class DomainNotAllowed(HlasError):
    """This website is not allowed to use the chat."""

    status = 403
    code = "domain_not_allowed"


class TenantInactive(HlasError):
    """The chat of this website is switched off."""

    status = 403
    code = "tenant_inactive"


class InvalidIdentity(HlasError):
    """The visitor's identity token is not valid for this website."""

    status = 401
    code = "invalid_identity"

    def __init__(self, reason: str) -> None:
        """`reason` is only logged, so that it does not help a forger."""
        super().__init__(headers={"WWW-Authenticate": "Bearer"})
        self.reason = reason


class IdentityRequired(HlasError):
    """This chat is only for visitors who are signed in on the website."""

    status = 403
    code = "identity_required"


class AuthenticationError(HlasError):
    """The request is not authenticated."""

    status = 401
    code = "unauthenticated"

    def __init__(self) -> None:
        super().__init__(headers={"WWW-Authenticate": "Bearer"})
        # The tenant of the request's Origin, which is not verified: used only to count incidents.
        self.tenant_id: str | None = None


class MissingAuthorization(AuthenticationError):
    """The Authorization header is missing."""

    code = "missing_authorization"


class InvalidAuthorization(AuthenticationError):
    """The Authorization header must be one `Bearer` token."""

    code = "invalid_authorization"


class InvalidToken(AuthenticationError):
    """The token was not issued by this service."""

    code = "invalid_token"


class TokenExpired(AuthenticationError):
    """The token has expired; refresh the session."""

    code = "token_expired"


class InvalidClaims(AuthenticationError):
    """The token has missing or invalid claims."""

    code = "invalid_claims"


class SessionExpired(AuthenticationError):
    """The session ended too long ago to be refreshed; open a new one."""

    code = "session_expired"


class SessionRevoked(AuthenticationError):
    """The session was signed out; open a new one."""

    code = "session_revoked"


class ConversationNotFound(HlasError):
    """The conversation of this token no longer exists."""

    status = 403
    code = "conversation_not_found"


class MessageNotFound(HlasError):
    """The conversation of this token has no answer with this id."""

    status = 404
    code = "message_not_found"


class ConversationMismatch(HlasError):
    """The token belongs to another conversation."""

    status = 403
    code = "conversation_mismatch"


class ConversationClosed(HlasError):
    """The conversation is closed; open a new session."""

    status = 403
    code = "conversation_closed"


class TakenOver(HlasError):
    """A person answers this conversation; the agent does not."""

    status = 409
    code = "taken_over"


class ModelFailed(HlasError):
    """The language model did not answer; the conversation has an answer from the knowledge."""

    status = 502
    code = "model_failed"


class ModelTimeout(HlasError):
    """The language model was too slow; the conversation has an answer from the knowledge."""

    status = 504
    code = "model_timeout"


class BudgetUsedUp(HlasError):
    """The budget is used up; the conversation has an answer from the knowledge."""

    status = 402
    code = "budget_used_up"


class DebugNotAllowed(HlasError):
    """This website does not allow traces of answers."""

    status = 403
    code = "debug_not_allowed"


class TenantMismatch(HlasError):
    """The token belongs to another website."""

    status = 403
    code = "tenant_mismatch"


class OriginMismatch(HlasError):
    """The token was issued for another origin."""

    status = 403
    code = "origin_mismatch"


class InvalidAdminKey(AuthenticationError):
    """The key is unknown or revoked."""

    code = "invalid_admin_key"


class Forbidden(HlasError):
    """This key is not allowed to do that."""

    status = 403
    code = "forbidden"


class FormRefused(HlasError):
    """The form was not sent from this page, or the page is too old; load it again."""

    status = 403
    code = "form_refused"


class PreconditionRequired(HlasError):
    """Send If-Match with the ETag that you have read, or * to overwrite any version."""

    status = 428
    code = "precondition_required"


class PreconditionFailed(HlasError):
    """It has been changed since you read it; read it again."""

    status = 412
    code = "precondition_failed"


class TenantError(HlasError):
    """This change cannot be made."""

    status = 400
    code = "invalid_change"

    def __init__(self, line: str) -> None:
        """`line` is for the command line; it may quote the input, which a response must not."""
        super().__init__()
        self.line = line

    def __str__(self) -> str:
        return self.line


class TenantNotFound(TenantError):
    """There is no such tenant."""

    status = 404
    code = "tenant_not_found"


class DomainNotFound(TenantError):
    """The tenant does not allow this domain."""

    status = 404
    code = "domain_not_found"


class SlugTaken(TenantError):
    """A tenant with this slug already exists."""

    status = 409
    code = "slug_taken"


class DomainTaken(TenantError):
    """This domain already belongs to a tenant."""

    status = 409
    code = "domain_taken"


class VisitorKeyNotFound(TenantError):
    """The tenant has no such visitor key."""

    status = 404
    code = "visitor_key_not_found"


class TooManyVisitorKeys(TenantError):
    """The tenant has reached the maximum number of visitor keys."""

    status = 409
    code = "too_many_visitor_keys"


class EntryNotFound(TenantError):
    """The tenant's knowledge has no such entry."""

    status = 404
    code = "entry_not_found"


class QuestionTaken(TenantError):
    """The tenant's knowledge already has this question."""

    status = 409
    code = "question_taken"


class TooManyEntries(TenantError):
    """The tenant's knowledge has reached its maximum size."""

    status = 409
    code = "too_many_entries"


class TooManyWordings(TenantError):
    """The entry has reached the maximum number of wordings."""

    status = 409
    code = "too_many_wordings"


class SourceNotFound(TenantError):
    """The tenant's knowledge has no such source."""

    status = 404
    code = "source_not_found"


class TooManySources(TenantError):
    """The tenant's knowledge has reached the maximum number of sources."""

    status = 409
    code = "too_many_sources"


class UnreadableSource(TenantError):
    """The document or page cannot be read; `reason` says why."""

    status = 422
    code = "unreadable_source"

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.extra = {"reason": line}


class DocumentTooSlow(UnreadableSource):
    """Reading the document or page takes too much time or memory."""

    code = "document_too_slow"


class UnsupportedDocument(UnreadableSource):
    """This type of document cannot be imported."""

    status = 415
    code = "unsupported_document"


class NotRefreshable(TenantError):
    """A file cannot be fetched again; import its new version instead."""

    status = 409
    code = "not_refreshable"


class ImportBusy(HlasError):
    """Other documents are being read; try again in a few seconds."""

    status = 409
    code = "import_busy"

    def __init__(self) -> None:
        super().__init__(headers={"Retry-After": "5"})


class ProductNotFound(TenantError):
    """The tenant has no such product."""

    status = 404
    code = "product_not_found"


class TooManyProducts(TenantError):
    """The tenant has reached the maximum number of products."""

    status = 409
    code = "too_many_products"


class McpServerNotFound(TenantError):
    """The tenant has no such MCP server."""

    status = 404
    code = "mcp_server_not_found"


class McpServerTaken(TenantError):
    """The tenant already has an MCP server of this name."""

    status = 409
    code = "mcp_server_taken"


class TooManyMcpServers(TenantError):
    """The tenant has reached the maximum number of MCP servers."""

    status = 409
    code = "too_many_mcp_servers"


class ModelNotFound(TenantError):
    """There is no such model."""

    status = 404
    code = "model_not_found"


class ModelTaken(TenantError):
    """A model with this name already exists."""

    status = 409
    code = "model_taken"


class ModelInUse(TenantError):
    """Tenants use this model; choose another one for them first."""

    status = 409
    code = "model_in_use"

    def __init__(self, name: str, tenants: Sequence[str]) -> None:
        super().__init__(
            f"{name} is used by {', '.join(tenants)}; choose another model there first"
        )
        self.extra = {"tenants": list(tenants)}


class PriceUnknown(TenantError):
    """The price of this model is not known; give it, or declare the model free."""

    status = 422
    code = "price_unknown"


class KeyNeeded(TenantError):
    """The address of the model changes; give its key again."""

    status = 422
    code = "key_needed"


class VaultShut(TenantError):
    """Keys of providers and servers cannot be stored or read with the present SECRETS_KEY."""

    status = 409
    code = "vault_shut"
