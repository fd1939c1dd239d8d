"""Secrets at rest: sealed with SECRETS_KEY, bound to their row, and useless when altered."""

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from factories import make_settings
from hlas.settings import ConfigurationError, Settings
from hlas.store.vault import FILE, Vault

KEY = "a key for tests that is long enough, too"
SECRET = "sk-provider-0123456789"
RACES = 40


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
    assert str(caught.value) == (
        "SECRETS_KEY is not the key this secret was encrypted with. Restore the old key, or enter "
        "the secret again."
    )
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


def seal_in_each(directory: Path, barrier: Barrier, name: str) -> None:
    """Open the vaults of fresh directories at the same time as another process."""
    for number in range(RACES):
        place = directory / str(number)
        barrier.wait(60)
        vault = Vault.from_settings(Settings(_env_file=None, data_dir=place))
        (place / name).write_bytes(vault.seal(SECRET, "a"))


def test_two_processes_make_one_key(tmp_path: Path) -> None:
    """Started at the same time on a fresh directory, both seal with the key that is stored."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(2)
    both = [
        spawn.Process(target=seal_in_each, args=(tmp_path, barrier, name)) for name in ("a", "b")
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    for number in range(RACES):
        place = tmp_path / str(number)
        assert {file.name for file in place.iterdir()} == {FILE, "a", "b"}
        vault = Vault.from_settings(Settings(_env_file=None, data_dir=place))
        assert [vault.open((place / name).read_bytes(), "a") for name in "ab"] == [SECRET, SECRET]


def test_an_empty_key_file_is_an_error(tmp_path: Path) -> None:
    """A file that lost its content is named; nothing is sealed with an empty key."""
    (tmp_path / FILE).touch()
    with pytest.raises(ConfigurationError, match=f"{FILE} is empty: restore it from a backup"):
        Vault.from_settings(Settings(_env_file=None, data_dir=tmp_path))
