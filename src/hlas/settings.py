"""Settings, read once from the environment and .env, and validated before anything starts."""

import re
from pathlib import Path
from typing import Annotated, Literal
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

# The prefix of the database roles of an installation: hlas_app, hlas_operator and so on.
DEFAULT_ROLE_PREFIX = "hlas"


class ConfigurationError(Exception):
    """A setting is invalid; the message is one line that names the variable."""


def _parse_limit(value: object) -> object:
    return Limit.parse(value) if isinstance(value, str) else value


def _parse_proxies(value: object) -> object:
    return TrustedProxies.parse(value) if isinstance(value, str) else value


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(?::([0-9]{1,5}))?")


def _check_address(value: str, schemes: frozenset[str], start: str) -> str:
    """Require an address that every library can parse: their errors would quote its password."""
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


def _check_database_url(value: str) -> str:
    return _check_address(value, frozenset({"postgresql", "postgres"}), "postgresql://")


def _check_hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        found = _HOST.fullmatch(value)
        if found is None or not 0 < int(found[1] or 1) < 65536 or set(value) & set("/@*? "):
            raise ValueError("must be hosts, or host:port, separated by commas")
    return tuple(value.lower() for value in values)


def _check_role_prefix(value: str) -> str:
    # PostgreSQL reserves names that start with pg_.
    if not re.fullmatch(r"(?!pg_|pg$)[a-z][a-z0-9_]{0,30}", value):
        raise ValueError(
            "must be 1 to 31 characters of a-z, 0-9 and _, start with a letter, and not with pg_"
        )
    return value


def _check_secret(value: str) -> str:
    if value and len(value.encode()) < 32:
        raise ValueError("needs at least 32 bytes; make one with: openssl rand -base64 48")
    return value


def _check_redis_url(value: str) -> str:
    schemes = frozenset({"redis", "rediss", "unix"})
    return _check_address(value, schemes, "redis://, rediss:// or unix://")


def _check_endpoint(value: str) -> str:
    return _check_address(value, frozenset({"http", "https"}), "http:// or https://")


RateLimit = Annotated[Limit | None, NoDecode, BeforeValidator(_parse_limit)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_file=".env",
        arbitrary_types_allowed=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        env_ignore_empty=True,
    )

    database_url: Annotated[str, AfterValidator(_check_database_url)] = Field(
        "", repr=False, description="PostgreSQL 15 or newer; empty: an embedded server in DATA_DIR"
    )
    data_dir: Path = Field(
        Path(".hlas"), description="directory of the embedded database and of generated secrets"
    )
    database_pool_size: int = Field(
        8,
        ge=1,
        le=200,
        description="read connections of each worker, in addition to its one write connection",
    )
    database_role_prefix: Annotated[str, AfterValidator(_check_role_prefix)] = Field(
        DEFAULT_ROLE_PREFIX,
        description="prefix of the database role names; installations that share a server need "
        "different prefixes",
    )
    database_login_secret: Annotated[str, AfterValidator(_check_secret)] = Field(
        "",
        repr=False,
        description="secret from which the passwords of the database roles are derived, at least "
        "32 bytes; empty: the password in DATABASE_URL",
    )
    redis_url: Annotated[str, AfterValidator(_check_redis_url)] = Field(
        "",
        repr=False,
        description="Redis that shares rate limits between workers and hosts; empty: each process "
        "counts alone",
    )
    widget_session_jwt_secret: str = Field(
        "",
        repr=False,
        description="secret that signs visitors' tokens, at least 32 bytes; empty: generated once "
        "and stored in DATA_DIR; required with DATABASE_URL",
    )
    widget_session_jwt_secrets: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = (
        Field(
            (),
            repr=False,
            description="several signing secrets for rotation, comma-separated, newest first: the "
            "first signs, all verify; replaces WIDGET_SESSION_JWT_SECRET",
        )
    )
    secrets_key: Annotated[str, AfterValidator(_check_secret)] = Field(
        "",
        repr=False,
        description="secret that encrypts the stored keys of model providers and MCP servers, at "
        "least 32 bytes; empty: generated once and stored in DATA_DIR; with DATABASE_URL, no such "
        "key can be stored without it",
    )
    widget_session_ttl_minutes: int = Field(
        10, ge=1, le=1440, description="lifetime of a visitor's token"
    )
    widget_session_refresh_hours: int = Field(
        168, ge=0, le=8760, description="how long after its expiry a token can still be refreshed"
    )
    widget_session_max_days: int = Field(
        30, ge=1, le=3650, description="maximum age of a session; after that it cannot be refreshed"
    )
    rate_limit_session_ip: RateLimit = Field(
        Limit(30, 60), description="sessions opened by one address"
    )
    rate_limit_session_tenant: RateLimit = Field(
        Limit(600, 60), description="sessions opened at one tenant"
    )
    rate_limit_messages_ip: RateLimit = Field(
        Limit(120, 60),
        description="messages sent by one address; replies have the same limit, counted separately",
    )
    rate_limit_messages_tenant: RateLimit = Field(
        Limit(3000, 60), description="messages sent to one tenant; replies likewise"
    )
    rate_limit_messages_conversation: RateLimit = Field(
        Limit(30, 60), description="messages sent in one conversation; replies likewise"
    )
    rate_limit_reads_ip: RateLimit = Field(
        Limit(600, 60),
        description="history, session refreshes, metrics and other reads by one address",
    )
    rate_limit_streams_ip: int = Field(
        30,
        ge=0,
        le=100_000,
        description="streams and waiting requests of one address, at each worker; 0: no limit",
    )
    rate_limit_streams_conversation: int = Field(
        10,
        ge=0,
        le=100_000,
        description="streams open at once of one conversation, at each worker; 0: no limit",
    )
    rate_limit_admin_key: RateLimit = Field(
        Limit(600, 60), description="requests with one administrator's key"
    )
    rate_limit_admin_denied_ip: RateLimit = Field(
        Limit(30, 60), description="rejected keys and console sign-ins of one address"
    )
    rate_limit_enforce: bool = Field(
        default=True,
        description="false: dry run; log and count what would be blocked, but block nothing",
    )
    max_connections_ip: int = Field(
        200, ge=0, description="open connections per address and worker; 0: unlimited"
    )
    max_json_body_bytes: int = Field(
        65536, ge=1024, le=16 * 1024 * 1024, description="maximum size of a request body"
    )
    max_message_text_len: int = Field(
        2000, ge=1, le=100_000, description="maximum length of a message, in code points"
    )
    idempotency_ttl_hours: int = Field(
        168, ge=1, le=8760, description="how long an Idempotency-Key is stored, at least"
    )
    agent_timeout_seconds: int = Field(
        30, ge=1, le=60, description="time limit of an answer by a language model, tools included"
    )
    agent_max_steps: int = Field(
        4, ge=1, le=5, description="model requests of an answer, besides a last one without tools"
    )
    agent_max_output_tokens: int = Field(
        800, ge=16, le=32_000, description="maximum length of a model's answer, in tokens"
    )
    agent_max_history_messages: int = Field(
        20, ge=0, le=50, description="messages of the conversation that a model is given"
    )
    embedding_model: str = Field(
        "",
        description="model that compares meanings: the name of one from `hlas model add` with an "
        "embeddings endpoint, or off; empty: EMBEDDING_MODEL_DIR or the built-in English model "
        "(needs the extra semantic)",
    )
    embedding_model_dir: Path | None = Field(
        None,
        description="directory of an embedding model, with model.onnx and tokenizer.json; empty: "
        "the built-in English model",
    )
    outbound_private_hosts: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_check_hosts)
    ] = Field(
        (),
        description="private hosts that tenants' MCP servers and imported pages may be on, as host "
        "or host:port, comma-separated; http is allowed there; empty: only public addresses, only "
        "https",
    )
    trusted_proxies: Annotated[TrustedProxies, NoDecode, BeforeValidator(_parse_proxies)] = Field(
        default_factory=TrustedProxies,
        description="proxies whose X-Forwarded-For is trusted: CIDRs, comma-separated",
    )
    incident_origin_mismatches: int = Field(
        20,
        ge=0,
        description="tokens used on another website, per tenant and hour, that raise an incident; "
        "0: never",
    )
    incident_conversation_mismatches: int = Field(
        20,
        ge=0,
        description="requests for another conversation, per tenant and hour, that raise an "
        "incident; 0: never",
    )
    incident_token_failures: int = Field(
        100,
        ge=0,
        description="invalid tokens, per tenant and hour, that raise an incident; 0: never",
    )
    incident_identity_failures: int = Field(
        50,
        ge=0,
        description="rejected visitor identities, per tenant and hour, that raise an incident; "
        "0: never",
    )
    incident_limit_hits: int = Field(
        200,
        ge=0,
        description="requests over a limit, per tenant and hour, that raise an incident; 0: never",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="minimum level of logged events"
    )
    log_format: Literal["", "json", "console"] = Field(
        "", description="json or console; empty: console on a terminal, json elsewhere"
    )
    otel_exporter_otlp_endpoint: Annotated[str, AfterValidator(_check_endpoint)] = Field(
        "",
        description="endpoint for OpenTelemetry traces (OTLP over HTTP, needs the extra otel); "
        "empty: no traces",
    )

    @model_validator(mode="after")
    def _require_long_secrets(self) -> "Settings":
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


def load() -> Settings:
    """Read the settings from the environment; raise ConfigurationError for an invalid one."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"][:1]).upper()
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{name}: {reason}" if name else reason) from None
