"""Secrets at rest: sealed with SECRETS_KEY, bound to their row, and useless when altered."""

from pathlib import Path

import pytest

from factories import make_settings
from hlas.settings import ConfigurationError, Settings
from hlas.store.vault import FILE, Vault

KEY = "a key for tests that is long enough, too"
SECRET = "sk-provider-0123456789"


def test_a_secret_is_sealed_and_opened() -> None:
    """The sealed form has no part of the secret, and differs each time."""
    vault = Vault(KEY)
    first, second = vault.seal(SECRET, "model a"), vault.seal(SECRET, "model a")
    assert first != second
    assert SECRET.encode() not in first
    assert vault.open(first, "model a") == vault.open(second, "model a") == SECRET


def test_another_key_opens_nothing() -> None:
    """A wrong SECRETS_KEY is one clear line that names the setting and not the secret."""
    sealed = Vault(KEY).seal(SECRET, "model a")
    with pytest.raises(ConfigurationError) as caught:
        Vault(KEY + "!").open(sealed, "model a")
    assert str(caught.value).startswith("SECRETS_KEY: it is not the one that this secret was")
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_secret_is_bound_to_its_row() -> None:
    """A sealed key that is copied to another row cannot be opened there."""
    vault = Vault(KEY)
    with pytest.raises(ConfigurationError):
        vault.open(vault.seal(SECRET, "model a"), "model b")


def test_altered_secrets_are_refused() -> None:
    """Every flipped byte, every shortened form and an empty one are refused."""
    vault = Vault(KEY)
    sealed = vault.seal(SECRET, "model a")
    altered = [
        sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        for place in range(len(sealed))
    ]
    for broken in (*altered, *(sealed[:end] for end in range(len(sealed))), sealed + b"\0"):
        with pytest.raises(ConfigurationError):
            vault.open(broken, "model a")


def test_without_a_key_nothing_is_stored(tmp_path: Path) -> None:
    """With DATABASE_URL and no SECRETS_KEY, sealing and opening say how to make one."""
    vault = Vault.from_settings(make_settings("postgresql://localhost/x", data_dir=tmp_path))
    for attempt in (lambda: vault.seal(SECRET, "a"), lambda: vault.open(b"x" * 40, "a")):
        with pytest.raises(ConfigurationError, match="openssl rand -base64 48"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_database_has_a_key_of_its_own(tmp_path: Path) -> None:
    """It is made once, for its owner alone, and used again after a restart."""
    settings = Settings(_env_file=None, data_dir=tmp_path)
    sealed = Vault.from_settings(settings).seal(SECRET, "a")
    assert Vault.from_settings(settings).open(sealed, "a") == SECRET
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / FILE).read_text("ascii")) >= 32
