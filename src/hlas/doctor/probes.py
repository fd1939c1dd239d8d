"""The token that authenticates `hlas doctor` to a running service."""

import time
from collections.abc import Sequence

import jwt
from jwt.types import Options

ALGORITHM = "HS256"
# Differs from the audience of visitors' tokens, so that neither works as the other.
AUDIENCE = "hlas-doctor"
SECONDS = 60


def issue(secret: str) -> str:
    claims = {"aud": AUDIENCE, "exp": int(time.time()) + SECONDS}
    return jwt.encode(claims, secret, ALGORITHM)


def is_ours(secrets: Sequence[str], headers: Sequence[str]) -> bool:
    """Whether a request carries a doctor's token, signed with one of our secrets."""
    if len(headers) != 1 or not headers[0].startswith("Bearer "):
        return False
    return any(_verifies(secret, headers[0].removeprefix("Bearer ")) for secret in secrets)


def _verifies(secret: str, token: str) -> bool:
    options: Options = {"require": ["aud", "exp"]}
    try:
        jwt.decode(token, secret, [ALGORITHM], audience=AUDIENCE, leeway=SECONDS, options=options)
    except jwt.InvalidTokenError:
        return False
    return True
