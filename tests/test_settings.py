"""Settings from the environment: defaults, and one line for an invalid value."""

from pathlib import Path

import pytest

from hlas import settings
from hlas.limits import Limit
from hlas.settings import ConfigurationError, Settings
from hlas.visitors import keys

SECRET = "a secret that is long enough for anybody"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove variables and the .env of the developer."""
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def test_defaults() -> None:
    """The defaults are those of the contract."""
    found = settings.load()
    assert found.embedded
    assert found.data_dir == Path(".hlas")
    assert found.widget_session_ttl_minutes == 10
    assert found.rate_limit_session_ip == Limit(30, 60)
    assert found.rate_limit_session_tenant == Limit(600, 60)
    assert found.rate_limit_messages_ip == Limit(120, 60)
    assert found.rate_limit_messages_tenant == Limit(3000, 60)
    assert found.rate_limit_messages_conversation == Limit(30, 60)
    assert found.rate_limit_enforce
    assert found.max_connections_ip == 200
    assert found.max_json_body_bytes == 65536
    assert found.max_message_text_len == 2000
    assert found.idempotency_ttl_hours == 168
    assert not found.trusted_proxies
    assert (found.redis_url, found.log_level, found.log_format) == ("", "info", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RATE_LIMIT_SESSION_IP", "lots"),
        ("RATE_LIMIT_SESSION_IP", "0/min"),
        ("RATE_LIMIT_SESSION_TENANT", "5"),
        ("RATE_LIMIT_MESSAGES_IP", "5/fortnight"),
        ("RATE_LIMIT_MESSAGES_TENANT", "-5/min"),
        ("RATE_LIMIT_MESSAGES_CONVERSATION", "5/min/min"),
        ("RATE_LIMIT_ENFORCE", "perhaps"),
        ("MAX_JSON_BODY_BYTES", "64k"),
        ("MAX_JSON_BODY_BYTES", "-1"),
        ("MAX_CONNECTIONS_IP", "-1"),
        ("MAX_MESSAGE_TEXT_LEN", "0"),
        ("WIDGET_SESSION_TTL_MINUTES", "ten"),
        ("WIDGET_SESSION_TTL_MINUTES", "0"),
        ("WIDGET_SESSION_REFRESH_HOURS", "-1"),
        ("IDEMPOTENCY_TTL_HOURS", "0"),
        ("DATABASE_POOL_SIZE", "0"),
        ("TRUSTED_PROXIES", "10.0.0.0/33"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("TRUSTED_PROXIES", "proxy.example"),
        ("DATABASE_URL", "mysql://localhost/hlas"),
        ("DATABASE_URL", "postgresql://[::1/hlas"),
        *(("DATABASE_ROLE_PREFIX", bad) for bad in ("Shop", "1st", "a-b", "a" * 32, "pg", "a\n")),
        ("DATABASE_LOGIN_SECRET", "short"),
        ("REDIS_URL", "localhost:6379"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("WIDGET_SESSION_JWT_SECRET", "short"),
    ],
)
def test_bad_value(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Edge case 31: an invalid value stops the start with one line that names the variable."""
    monkeypatch.setenv(name, value)
    if name == "DATABASE_URL":
        monkeypatch.setenv("WIDGET_SESSION_JWT_SECRET", SECRET)
    with pytest.raises(ConfigurationError) as caught:
        settings.load()
    line = str(caught.value)
    assert line.startswith(f"{name}: ")
    assert "\n" not in line


def test_secret_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """With DATABASE_URL a secret is required; the error says how to generate one."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/hlas")
    with pytest.raises(ConfigurationError, match=r"^WIDGET_SESSION_JWT_SECRET: required .*openssl"):
        keys.from_settings(settings.load())


def test_secrets_stay_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither repr nor an error contains a secret."""
    monkeypatch.setenv("WIDGET_SESSION_JWT_SECRET", SECRET)
    monkeypatch.setenv("WIDGET_SESSION_JWT_SECRETS", f"{SECRET}-2,{SECRET}-1")
    found = settings.load()
    assert found.signing_secrets == (f"{SECRET}-2", f"{SECRET}-1")
    assert SECRET not in repr(found)
    monkeypatch.setenv("WIDGET_SESSION_JWT_SECRETS", f"{SECRET},short-one")
    with pytest.raises(ConfigurationError) as caught:
        settings.load()
    assert "short-one" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_password_stays_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in a URL is neither in repr nor in an error."""
    monkeypatch.setenv("WIDGET_SESSION_JWT_SECRET", SECRET)
    monkeypatch.setenv("DATABASE_URL", "postgresql://hlas:swordfish@db.example/hlas")
    monkeypatch.setenv("REDIS_URL", "redis://:swordfish@cache.example")
    monkeypatch.setenv("DATABASE_LOGIN_SECRET", "swordfish" * 4)
    assert "swordfish" not in repr(settings.load())


def test_empty_means_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable, as in a copied .env.example, means the default."""
    for name in Settings.model_fields:
        monkeypatch.setenv(name.upper(), "")
    for name, value in settings.load():
        assert (
            str(value) == str(getattr(Settings(_env_file=None), name)) or name == "trusted_proxies"
        )
    assert not settings.load().trusted_proxies


def test_off_and_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """`off` disables a limit; proxies are a list of networks."""
    monkeypatch.setenv("RATE_LIMIT_MESSAGES_IP", "off")
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.0/8, 2001:db8::/32,192.0.2.1")
    found = settings.load()
    assert found.rate_limit_messages_ip is None
    for address in ("10.1.2.3", "2001:db8::1", "192.0.2.1"):
        assert found.trusted_proxies.trust(address)
    for address in ("11.0.0.1", "2001:db9::1", "192.0.2.2"):
        assert not found.trusted_proxies.trust(address)


def test_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """.env is read, and the environment overrides it."""
    (tmp_path / ".env").write_text("MAX_MESSAGE_TEXT_LEN=5\nLOG_LEVEL=debug\nSOMEBODY_ELSES=1\n")
    monkeypatch.setenv("LOG_LEVEL", "error")
    found = settings.load()
    assert (found.max_message_text_len, found.log_level) == (5, "error")
