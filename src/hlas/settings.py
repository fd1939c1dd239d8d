"""One frozen Settings, read from the environment and .env, checked before anything starts."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hlas.limits import Limit
from hlas.limits.addresses import TrustedProxies

# The database roles of one installation are called hlas_app, hlas_operator and so on.
DEFAULT_ROLE_PREFIX = "hlas"


class ConfigurationError(Exception):
    """A setting is wrong; the message is one line that names the variable."""


def _limit(value: Any) -> Any:
    return Limit.parse(value) if isinstance(value, str) else value


def _proxies(value: Any) -> Any:
    return TrustedProxies.parse(value) if isinstance(value, str) else value


def _secrets(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(?::([0-9]{1,5}))?")


def _check_address(value: str, schemes: frozenset[str], start: str) -> str:
    """An address that every library can read; an error of theirs would quote its password."""
    if value and value.partition("://")[0] not in schemes:
        raise ValueError(f"must start with {start}")
    try:
        parts = urlsplit(value)
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
        hosts = [_HOST.fullmatch(one) for one in parts.netloc.rpartition("@")[2].split(",")]
        is_clear = not parts.fragment and all(one and int(one[1] or 0) < 65536 for one in hosts)
    except ValueError:
        is_clear = False
    if not is_clear:
        raise ValueError("cannot be read; in a password, write # / ? [ ] as %23 %2F %3F %5B %5D")
    return value


def _database_url(value: str) -> str:
    return _check_address(value, frozenset({"postgresql", "postgres"}), "postgresql://")


def _role_prefix(value: str) -> str:
    # PostgreSQL keeps names that begin with pg_ for itself.
    if not re.fullmatch(r"(?!pg_|pg$)[a-z][a-z0-9_]{0,30}", value):
        raise ValueError("must be 1 to 31 of a-z, 0-9 and _, begin with a letter, and not with pg_")
    return value


def _login_secret(value: str) -> str:
    if value and len(value.encode()) < 32:
        raise ValueError("needs at least 32 bytes; make one with: openssl rand -base64 48")
    return value


def _redis_url(value: str) -> str:
    schemes = frozenset({"redis", "rediss", "unix"})
    return _check_address(value, schemes, "redis://, rediss:// or unix://")


def _endpoint(value: str) -> str:
    return _check_address(value, frozenset({"http", "https"}), "http:// or https://")


RateLimit = Annotated[Limit | None, NoDecode, BeforeValidator(_limit)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_file=".env",
        arbitrary_types_allowed=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        env_ignore_empty=True,
    )

    database_url: Annotated[str, AfterValidator(_database_url)] = Field(
        "", repr=False, description="PostgreSQL 15 or newer; empty: an embedded server in DATA_DIR"
    )
    data_dir: Path = Field(
        Path(".hlas"), description="where the embedded database and generated secrets are kept"
    )
    database_pool_size: int = Field(
        8, ge=1, le=200, description="connections each worker keeps for reading, beside its writer"
    )
    database_role_prefix: Annotated[str, AfterValidator(_role_prefix)] = Field(
        DEFAULT_ROLE_PREFIX,
        description="how the names of the database roles begin; two installations on one server "
        "need two",
    )
    database_login_secret: Annotated[str, AfterValidator(_login_secret)] = Field(
        "",
        repr=False,
        description="the passwords of the database roles are derived from it, at least 32 bytes; "
        "empty: from the password in DATABASE_URL",
    )
    redis_url: Annotated[str, AfterValidator(_redis_url)] = Field(
        "",
        repr=False,
        description="shares limits between workers and hosts; empty: kept in each process",
    )
    widget_session_jwt_secret: str = Field(
        "",
        repr=False,
        description="signs visitors' tokens, at least 32 bytes; empty: made once and kept in "
        "DATA_DIR when the database is embedded, required otherwise",
    )
    widget_session_jwt_secrets: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_secrets)] = (
        Field(
            (),
            repr=False,
            description="several secrets for rotation, comma-separated, newest first: the first "
            "signs, all verify; replaces WIDGET_SESSION_JWT_SECRET",
        )
    )
    widget_session_ttl_minutes: int = Field(
        10, ge=1, le=1440, description="how long a visitor's token is valid"
    )
    widget_session_refresh_hours: int = Field(
        168, ge=0, le=8760, description="how long after expiry a token may still be refreshed"
    )
    widget_session_max_days: int = Field(
        30, ge=1, le=3650, description="how long a session may be refreshed since it was opened"
    )
    rate_limit_session_ip: RateLimit = Field(
        Limit(30, 60), description="sessions opened from one address"
    )
    rate_limit_session_tenant: RateLimit = Field(
        Limit(600, 60), description="sessions opened at one tenant"
    )
    rate_limit_messages_ip: RateLimit = Field(
        Limit(120, 60), description="messages sent from one address"
    )
    rate_limit_messages_tenant: RateLimit = Field(
        Limit(3000, 60), description="messages sent to one tenant"
    )
    rate_limit_messages_conversation: RateLimit = Field(
        Limit(30, 60), description="messages sent in one conversation"
    )
    rate_limit_reads_ip: RateLimit = Field(
        Limit(600, 60), description="history, refreshes and other reads from one address"
    )
    rate_limit_admin_key: RateLimit = Field(
        Limit(600, 60), description="requests with one administrator's key"
    )
    rate_limit_admin_denied_ip: RateLimit = Field(
        Limit(30, 60), description="requests to /admin without a valid key from one address"
    )
    rate_limit_enforce: bool = Field(
        default=True, description="false: log and count what would be blocked, block nothing"
    )
    max_connections_ip: int = Field(
        200, ge=0, description="connections one address may have open at a worker; 0: any number"
    )
    max_json_body_bytes: int = Field(
        65536, ge=1024, le=16 * 1024 * 1024, description="largest request body"
    )
    max_message_text_len: int = Field(
        2000, ge=1, le=100_000, description="longest message, in code points"
    )
    idempotency_ttl_hours: int = Field(
        168, ge=1, le=8760, description="how long an Idempotency-Key is remembered at least"
    )
    trusted_proxies: Annotated[TrustedProxies, NoDecode, BeforeValidator(_proxies)] = Field(
        default_factory=TrustedProxies,
        description="CIDRs, comma-separated, whose X-Forwarded-For is believed",
    )
    incident_origin_mismatches: int = Field(
        20, ge=0, description="tokens on another website, at one tenant in an hour; 0: no incident"
    )
    incident_conversation_mismatches: int = Field(
        20, ge=0, description="others' conversations, at one tenant in an hour; 0: no incident"
    )
    incident_token_failures: int = Field(
        100, ge=0, description="forged or broken tokens at one tenant in an hour; 0: no incident"
    )
    incident_identity_failures: int = Field(
        50,
        ge=0,
        description="refused visitors' identities at one tenant in an hour; 0: no incident",
    )
    incident_limit_hits: int = Field(
        200, ge=0, description="requests over a limit at one tenant in an hour; 0: no incident"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe event that is logged"
    )
    log_format: Literal["", "json", "console"] = Field(
        "", description="json or console; empty: console on a terminal, json elsewhere"
    )
    otel_exporter_otlp_endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        "", description="where OpenTelemetry traces go (OTLP over HTTP); empty: no traces"
    )

    @model_validator(mode="after")
    def _secrets_are_long(self) -> "Settings":
        for secret in self.signing_secrets:
            if len(secret.encode()) < 32:
                raise ValueError(
                    "WIDGET_SESSION_JWT_SECRET: every secret needs at least 32 bytes; "
                    "make one with: openssl rand -base64 48"
                )
        return self

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        single = (self.widget_session_jwt_secret,) if self.widget_session_jwt_secret else ()
        return self.widget_session_jwt_secrets or single

    @property
    def embedded(self) -> bool:
        return not self.database_url


def load(**overrides: Any) -> Settings:
    """The settings of this environment; a bad one raises one line that names it."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"][:1]).upper()
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{name}: {reason}" if name else reason) from None
