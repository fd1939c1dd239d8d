"""A question only the doctor may ask: as whom does the service see the one who asks?"""

import time
from collections.abc import Sequence
from typing import Any

import jwt

ALGORITHM = "HS256"
# Other than that of visitors' tokens: neither is good for the other's purpose.
AUDIENCE = "hlas-doctor"
SECONDS = 60


def issue(secret: str) -> str:
    claims = {"aud": AUDIENCE, "exp": int(time.time()) + SECONDS}
    return jwt.encode(claims, secret, ALGORITHM)


def is_ours(secrets: Sequence[str], headers: Sequence[str]) -> bool:
    """Whether a request carries the token of a doctor who knows one of our secrets."""
    if len(headers) != 1 or not headers[0].startswith("Bearer "):
        return False
    return any(_verifies(secret, headers[0].removeprefix("Bearer ")) for secret in secrets)


def _verifies(secret: str, token: str) -> bool:
    options: Any = {"require": ["aud", "exp"]}
    try:
        jwt.decode(token, secret, [ALGORITHM], audience=AUDIENCE, leeway=SECONDS, options=options)
    except jwt.InvalidTokenError:
        return False
    return True
