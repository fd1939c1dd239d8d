"""The passwords of the two roles, made once and kept in DATA_DIR (mode 0600)."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from hlas.store.embedded.errors import EmbeddedPostgresError

FILE = "postgres-passwords.json"


@dataclass(frozen=True, repr=False)
class Passwords:
    superuser: str
    owner: str


def read_passwords(data_dir: Path) -> Passwords | None:
    path = data_dir / FILE
    try:
        return Passwords(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise EmbeddedPostgresError(f"{path} is not readable; run Hlas as its owner.") from None
    except (ValueError, TypeError):
        raise EmbeddedPostgresError(
            f"{path} is damaged; remove it, and the next start makes new passwords."
        ) from None


def make_passwords(data_dir: Path) -> Passwords:
    passwords = Passwords(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
    new = data_dir / f"{FILE}.new"
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(passwords), file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(data_dir / FILE)
    return passwords
