"""The express lane: a message that nothing is wrong with, from its socket to the store and back.

There is no task, no future and no framework on the way, which is most of what a message would
cost. Whatever is unusual about a request is left to the application, before anything of it was
consumed, so that both ways give the same answers; the lane also refuses addresses that are over
their limit, because a flood must cost as little as can be.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hlas import errors, log
from hlas.api.errors import report
from hlas.api.widget import REPLAYED, STORED, note_failure, note_success
from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.http.asgi import Headers
from hlas.http.cors import Readers, readable
from hlas.http.gate import LIMITED, MESSAGES, note_blocked
from hlas.http.headers import security_headers
from hlas.http.server import Connection
from hlas.limits import Refusal, Rule
from hlas.services import Services
from hlas.store.writer import Written
from hlas.visitors.sessions import bearer
from hlas.visitors.tokens import Session

# Stands in a prepared body for the id of the request that it will answer.
_IDENTIFIER = "{request id}"
_UNUSUAL = frozenset({b"transfer-encoding", b"content-encoding"})


class Express:
    """One for each worker."""

    paths: Final = {path.encode(): path for path in LIMITED}

    def __init__(self, services: Services, readers: Readers) -> None:
        self.services = services
        self.readers = readers
        self._largest = services.settings.max_json_body_bytes
        self._proxies = services.settings.trusted_proxies
        self._landed: list[Exchange] = []
        self._default: tuple[object, bytes] = (None, b"")

    def begin(self, connection: Connection) -> "Exchange | None":
        """Take a request on by its headers; None leaves it to the application."""
        if connection.parser.get_method() != b"POST":
            return None
        exchange = Exchange(self, connection, self.paths[connection.url])
        entered = log.enter(exchange.context)
        try:
            return exchange if exchange.refuse() or self._is_good(exchange) else None
        except Exception:  # noqa: BLE001  # the application meets the same fault, and tells of it
            return None
        finally:
            log.leave(entered)

    def _is_good(self, exchange: "Exchange") -> bool:
        gate, tokens = self.services.gate, self.services.tokens
        if exchange.route != MESSAGES or not gate.is_local or not exchange.is_plain(self._largest):
            return False
        try:
            session = tokens.verify(bearer(exchange.texts(b"authorization")))
            exchange.key = messages.parse_key(exchange.texts(b"idempotency-key"))
        except errors.HlasError:
            return False
        exchange.session = session
        return exchange.origin is None or exchange.origin == session.origin.encode()

    def is_tls(self, exchange: "Exchange") -> bool:
        scheme, forwarded = exchange.connection.scheme, exchange.texts(b"x-forwarded-proto")
        return log.comes_over_tls(scheme, exchange.peer, forwarded, self._proxies)

    def is_direct(self, exchange: "Exchange") -> bool:
        """The connection is the client's own, not one that a proxy shares among many."""
        return bool(exchange.peer) and not self._proxies.trust(exchange.peer)

    def default_lines(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """What uvicorn sends with every answer; it makes a new list when the date changes."""
        if self._default[0] is not headers:
            self._default = headers, _lines(headers)
        return self._default[1]

    def land(self, exchange: "Exchange") -> None:
        """Answer soon: the writer goes first, so that the database has work meanwhile."""
        self._landed.append(exchange)
        if len(self._landed) == 1:
            asyncio.get_running_loop().call_soon(self._answer_all)

    def _answer_all(self) -> None:
        landed, self._landed = self._landed, []
        for exchange in landed:
            # Not to be left: the loop has given this call a context of its own.
            log.enter(exchange.context)
            exchange.answer()


class _Nobody:
    """uvicorn tells whoever reads a body that there is more of it; here nobody does."""

    def set(self) -> None: ...


class Exchange:
    """One request between its headers and its answer; the writer tells it what was stored."""

    __slots__ = (
        "_express",
        "_headers",
        "_is_repeated",
        "_outcome",
        "_pairs",
        "_started",
        "address",
        "connection",
        "context",
        "disconnected",
        "keep_alive",
        "key",
        "origin",
        "peer",
        "response_complete",
        "route",
        "session",
    )

    message_event: ClassVar = _Nobody()

    def __init__(self, express: Express, connection: Connection, route: str) -> None:
        self._express = express
        # The connection has another list for the next request, which may come before the answer.
        self._pairs = connection.headers
        self._headers = dict(self._pairs)
        self._is_repeated = len(self._headers) != len(self._pairs)
        self._started = time.perf_counter()
        self._outcome: Written | Refusal | Exception | None = None
        self.connection = connection
        self.route = route
        self.context: dict[str, Any] = {
            "request_id": log.identify(self._headers.get(b"x-request-id"))
        }
        self.origin = self._headers.get(b"origin")
        self.peer = connection.client[0] if connection.client else ""
        self.address: str | None = None
        self.key: str | None = None
        self.session: Session | None = None
        self.keep_alive = True
        self.response_complete = False
        self.disconnected = False

    def texts(self, name: bytes) -> Sequence[str]:
        """Every value of a header, as it came."""
        if self._is_repeated:
            return [value.decode("latin-1") for header, value in self._pairs if header == name]
        value = self._headers.get(name)
        return () if value is None else (value.decode("latin-1"),)

    def is_plain(self, largest: int) -> bool:
        """Nothing is said twice, and the body is bounded before it comes, and not encoded."""
        headers = self._headers
        length = headers.get(b"content-length", b"")
        return (
            not self._is_repeated
            and not self.connection.expect_100_continue
            and length.isdigit()
            and int(length) <= largest
            and headers.get(b"content-type", b"application/json") == b"application/json"
            and _UNUSUAL.isdisjoint(headers)
        )

    def refuse(self) -> bool:
        """Answer an address that is over its limit, whatever else it has to say."""
        gate = self._express.services.gate
        self.address = gate.address_of(self.peer or None, self.texts(b"x-forwarded-for"))
        refusal = gate.look_now(self.route, self.address)
        if refusal is None:
            return False
        if self._express.is_direct(self):
            self.connection.hold_back()
        # From here on it is ours, and nothing may go wrong that would leave it to the application.
        self._outcome = refusal
        self._express.land(self)
        return True

    def complete(self, body: bytes) -> bool:
        """The body is here: hand the message to the writer, or leave it."""
        entered = log.enter(self.context)
        try:
            return self._submit(body)
        except Exception as error:  # noqa: BLE001  # what it met may have counted already
            self.set_exception(error)
            return True
        finally:
            log.leave(entered)

    def _submit(self, body: bytes) -> bool:
        services, session = self._express.services, self.session
        if session is None or not services.writer.has_room:
            return False
        try:
            message = NewMessage.parse(body, services.settings.max_message_text_len)
        except errors.HlasError:
            return False
        tenant_id, conversation_id = session.tenant_id, session.conversation_id
        if not services.gate.admit_now(MESSAGES, self.address, tenant_id, conversation_id):
            return False
        self.context |= {"tenant_id": tenant_id, "conversation_id": conversation_id}
        services.writer.submit(messages.draft(session, message, self.key), self)
        return True

    def done(self) -> bool:
        """For the writer this is a future, at less cost. The connection asks whether to read on."""
        return self._outcome is not None

    def set_result(self, written: Written) -> None:
        self._outcome = written
        self._express.land(self)

    def set_exception(self, error: Exception) -> None:
        self._outcome = error
        self._express.land(self)

    def answer(self) -> None:
        """Send the outcome, and tell of it as the application would."""
        metrics, status = self._express.services.metrics, 500
        try:
            status = self._send()
        except Exception as error:  # noqa: BLE001  # other exchanges wait for their answers
            report(error, self.route, metrics)
            self.connection.transport.abort()
        finally:
            log.account(metrics, "POST", self.route, status, self._started)

    def _send(self) -> int:
        outcome, metrics = self._outcome, self._express.services.metrics
        identifier, tls = self.context["request_id"], self._express.is_tls(self)
        if isinstance(outcome, Written):
            note_success(metrics, outcome, self.key)
            status, body = 200, outcome.response.encode()
            lines = _stored(self.origin, outcome.replayed, tls)
        elif isinstance(outcome, Refusal):
            note_blocked(metrics, outcome.rule.scope, self.route)
            status, lines, text = _refused(outcome.rule, outcome.retry_after, self._reader(), tls)
            body = text.replace(_IDENTIFIER, identifier).encode()
        else:
            error = outcome or errors.HlasError()
            note_failure(metrics, error)
            report(error, self.route, metrics)
            status, headers, body = errors.render(error, identifier)
            lines = _lines((*headers, *readable(self._reader()), *_secure(tls)))
        response = b"%b%b%bx-request-id: %b\r\ncontent-length: %d\r\n%b\r\n%b" % (
            STATUS_LINE[status],
            self._express.default_lines(self.connection.server_state.default_headers),
            lines,
            identifier.encode(),
            len(body),
            b"" if self.keep_alive else b"connection: close\r\n",
            body,
        )
        self.connection.answer(self, response)
        return status

    def _reader(self) -> bytes | None:
        """The origin whose scripts may read the answer."""
        if self.session is not None or self.origin is None:
            return self.origin
        if self._is_repeated and len(self.texts(b"origin")) > 1:
            return None
        return self._express.readers.at_hand((self.origin,), self.texts(b"authorization"))


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


@lru_cache(maxsize=4096)
def _stored(origin: bytes | None, replayed: bool, tls: bool) -> bytes:  # noqa: FBT001  # as cached
    """All headers of a stored message that do not change from one to the next."""
    own = REPLAYED if replayed else STORED
    return _lines((*own, *readable(origin), *_secure(tls)))


@lru_cache(maxsize=4096)
def _refused(
    rule: Rule,
    retry_after: int,
    reader: bytes | None,
    tls: bool,  # noqa: FBT001  # as cached
) -> tuple[int, bytes, str]:
    """Status, headers and body of a refusal; the body still needs the request's id."""
    refusal = Refusal(rule, "", retry_after)
    error = errors.RateLimited(rule.scope, refusal.headers())
    status, headers, body = errors.render(error, _IDENTIFIER)
    return status, _lines((*headers, *readable(reader), *_secure(tls))), body.decode()


def _secure(tls: bool) -> Headers:  # noqa: FBT001  # as they are cached
    return security_headers(own_policy=False, tls=tls)
