"""Identities that a tenant's server signed are accepted; imitations are not.

Fails with these defects planted: the algorithm taken from the token's header, the audience
not compared, `exp` not required, `isinstance(..., int)` in place of the exact type.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from hlas.errors import InvalidIdentity
from hlas.visitors import identities
from signing import PrivateKey, Server, encode, forge, pem_of

EMBEDDING = Path(__file__).parents[2] / "docs" / "embedding.md"
AUDIENCES = ("shop", "0190c1f0-0000-7000-8000-000000000000")
NOW = 1_800_000_000


def server_of(private: PrivateKey | None = None) -> Server:
    """With a fixed clock, so that the tests are the same whenever they are collected."""
    return Server(private, clock=lambda: NOW)


SECRET = server_of()
ELLIPTIC = server_of(ec.generate_private_key(ec.SECP256R1()))
RSA = server_of(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def verify(token: str, *servers: Server, now: float = NOW) -> str:
    keys = {server.key.kid: server.key for server in servers}
    return identities.verify(token, keys, AUDIENCES, now)


def read_reason(token: str, *servers: Server, now: float = NOW) -> str:
    """The reason for the log; the response is the same for all."""
    with pytest.raises(InvalidIdentity) as caught:
        verify(token, *servers, now=now)
    error = caught.value
    assert (error.status, error.code) == (401, "invalid_identity")
    assert error.reason not in str(error.body("x"))
    return error.reason


@pytest.mark.parametrize("server", [SECRET, ELLIPTIC, RSA], ids=["HS256", "ES256", "RS256"])
def test_what_the_tenant_signs(server: Server) -> None:
    """Edge case 39: the subject of a token for this tenant, by its slug or by its id."""
    for audience in AUDIENCES:
        assert verify(server.sign("žofie@example.com", audience), server) == "žofie@example.com"
    assert verify(server.sign("7", "shop", iat=None), server) == "7"
    assert len(server.key.kid) == 16
    assert server.key.material not in repr(server.key)


def test_rotation() -> None:
    """Each key verifies tokens with its kid; a removed key verifies nothing."""
    tokens = [server.sign("eva", "shop") for server in (SECRET, ELLIPTIC, RSA)]
    for token in tokens:
        assert verify(token, SECRET, ELLIPTIC, RSA) == "eva"
    assert read_reason(tokens[0], ELLIPTIC, RSA) == "unknown_key"
    assert read_reason(tokens[0]) == "unknown_key"


def test_the_key_decides_the_algorithm() -> None:
    """Edge case 39: none, another algorithm, and HMAC with the public key are refused."""
    claims = orjson.dumps({"sub": "eva", "aud": "shop", "exp": NOW + 600})
    for server in (SECRET, ELLIPTIC, RSA):
        public = server.key.material.encode()
        for algorithm in ("none", "None", "NONE", "HS256", "HS384", "ES256", "RS256", "PS256", ""):
            for secret in (b"", public, public.strip()):
                if algorithm == server.key.algorithm == "HS256" and secret:
                    continue
                token = forge({"alg": algorithm, "kid": server.key.kid}, claims, secret)
                assert read_reason(token, server) in {"algorithm", "signature", "malformed"}
        unsigned = f"{encode(orjson.dumps({'alg': 'none', 'kid': server.key.kid}))}."
        assert read_reason(f"{unsigned}{encode(claims)}.", server) == "malformed"


def test_a_valid_key_with_another_algorithm() -> None:
    """Edge case 39: a valid key is accepted only with its own algorithm."""
    claims = {"sub": "eva", "aud": "shop", "exp": NOW + 600}
    for server, algorithms in ((SECRET, ("HS384", "HS512")), (RSA, ("RS384", "RS512", "PS256"))):
        for algorithm in algorithms:
            header = {"kid": server.key.kid}
            token = jwt.encode(claims, server._signing, algorithm=algorithm, headers=header)
            assert read_reason(token, server) == "algorithm"


def test_another_key_under_the_same_name() -> None:
    """A kid is only a name: the tenant's key with that name must verify the signature."""
    for server in (SECRET, ELLIPTIC):
        other = (
            server_of() if server is SECRET else server_of(ec.generate_private_key(ec.SECP256R1()))
        )
        claims = {"sub": "eva", "aud": "shop", "exp": NOW + 600}
        header = {"alg": server.key.algorithm, "kid": server.key.kid}
        stolen = other.sign("eva", "shop").split(".")
        stolen[0] = encode(orjson.dumps({**header, "typ": "JWT"}))
        assert read_reason(".".join(stolen), server) == "signature"
        forged = forge(header, orjson.dumps(claims), b"guessed")
        assert read_reason(forged, server) in {"signature", "malformed"}


WRONG_CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"exp": None}, "times"),
    ({"exp": str(NOW + 600)}, "times"),
    ({"exp": NOW + 600.0}, "times"),
    ({"exp": True}, "times"),
    ({"exp": [NOW + 600]}, "times"),
    ({"exp": NOW - 31}, "expired"),
    ({"exp": -(10**30)}, "expired"),
    ({"exp": 10**30}, "lives_too_long"),
    ({"exp": 10**400, "iat": None}, "lives_too_long"),
    ({"exp": NOW + 86_400 + 61, "iat": None}, "lives_too_long"),
    ({"exp": NOW + 86_401, "iat": NOW}, "lives_too_long"),
    ({"iat": NOW - 86_400}, "lives_too_long"),
    ({"iat": NOW + 61}, "not_yet"),
    ({"nbf": NOW + 61}, "not_yet"),
    ({"iat": False}, "times"),
    ({"iat": "now"}, "times"),
    ({"nbf": 1.5}, "times"),
    ({"aud": None}, "audience"),
    ({"aud": "another-shop"}, "audience"),
    ({"aud": ["shop"]}, "audience"),
    ({"aud": ["shop", "another-shop"]}, "audience"),
    ({"aud": ""}, "audience"),
    ({"aud": "Shop"}, "audience"),
    ({"sub": None}, "subject"),
    ({"sub": ""}, "subject"),
    ({"sub": "  "}, "subject"),
    ({"sub": 7}, "subject"),
    ({"sub": True}, "subject"),
    ({"sub": ["eva"]}, "subject"),
    ({"sub": "x" * 129}, "subject"),
    ({"sub": "eva\n"}, "subject"),
    ({"sub": "e\x00va"}, "subject"),
    ({"sub": "eva\u202e"}, "subject"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG_CLAIMS, ids=repr)
def test_claims(changes: dict[str, Any], reason: str) -> None:
    """Edge case 39: a valid signature over claims of a wrong type, time, audience or subject."""
    # Signed by hand, because the library refuses some of these.
    claims = {"sub": "eva", "aud": "shop", "iat": NOW, "exp": NOW + 600, **changes}
    kept = {name: value for name, value in claims.items() if value is not None}
    body = str(kept).replace("'", '"').replace("True", "true").replace("False", "false")
    body = body.replace("\\x00", "\\u0000")
    token = forge({"alg": "HS256", "kid": SECRET.key.kid}, body.encode(), secret_bytes())
    assert read_reason(token, SECRET) == reason


def secret_bytes() -> bytes:
    return SECRET.key.material.encode()


def test_boundaries() -> None:
    """Edge case 39: clocks may differ by 30 s; a lifetime is at most a day, an id at most 128."""
    assert verify(SECRET.sign("x" * 128, "shop", exp=NOW - 29), SECRET) == "x" * 128
    assert verify(SECRET.sign("eva", "shop", exp=NOW + 86_400, iat=NOW), SECRET) == "eva"
    assert verify(SECRET.sign("eva", "shop", iat=NOW + 29, nbf=NOW + 29), SECRET) == "eva"


def test_shapes() -> None:
    """Edge case 39: huge, truncated, padded and nested tokens, and untrusted headers."""
    good = SECRET.sign("eva", "shop")
    head, body, signature = good.split(".")
    kid = SECRET.key.kid
    claims = orjson.dumps({"sub": "eva", "aud": "shop", "exp": NOW + 600})
    deep = b'{"sub":' + b"[" * 1200 + b"]" * 1200 + b"}"
    strange = [
        "",
        "a.b",
        "a.b.c.d",
        good + "=",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}..{signature}",
        f" {good}",
        good + "a" * 5000,
        forge({"alg": "HS256", "kid": kid}, b"[]", secret_bytes()),
        forge({"alg": "HS256", "kid": kid}, b"7", secret_bytes()),
        forge({"alg": "HS256", "kid": kid}, b"{", secret_bytes()),
        forge({"alg": "HS256", "kid": kid}, b"\xff", secret_bytes()),
        forge({"alg": "HS256", "kid": kid}, deep, secret_bytes()),
        forge({"alg": "HS256", "kid": kid, "crit": ["exp"]}, claims, secret_bytes()),
        forge({"alg": "HS256", "kid": kid, "b64": False, "crit": ["b64"]}, claims, secret_bytes()),
        forge({"alg": "HS256"}, claims, secret_bytes()),
        forge({"alg": "HS256", "kid": [kid]}, claims, secret_bytes()),
        forge({"alg": "HS256", "kid": None}, claims, secret_bytes()),
        forge({"alg": ["HS256"], "kid": kid}, claims, secret_bytes()),
        f"{encode(b'[' * 1300)}.{body}.{signature}",
    ]
    for token in strange:
        assert read_reason(token, SECRET) in {"malformed", "signature", "unknown_key", "algorithm"}
    assert verify(forge({"alg": "HS256", "kid": kid}, claims, secret_bytes()), SECRET) == "eva"


@given(st.text(alphabet="eyJhbGciOIUzI1NiJ9._-=", max_size=200) | st.text(max_size=80))
def test_any_text(token: str) -> None:
    """Edge case 34: any other text is refused as an identity without an error."""
    read_reason(token, SECRET)


def test_public_keys() -> None:
    """P-256 and RSA of an acceptable size are accepted; a private key is not even parsed."""
    for server in (ELLIPTIC, RSA):
        again = identities.read_public_key(server.key.material.replace("\n", "\r\n") + "\n\n")
        assert again == server.key
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    pem = Encoding.PEM
    wrong = {
        "must be": [
            pem_of(small),
            pem_of(ec.generate_private_key(ec.SECP384R1())),
            ed25519.Ed25519PrivateKey.generate()
            .public_key()
            .public_bytes(pem, PublicFormat.SubjectPublicKeyInfo)
            .decode(),
            dsa.generate_private_key(2048)
            .public_key()
            .public_bytes(pem, PublicFormat.SubjectPublicKeyInfo)
            .decode(),
        ],
        "is a private key": [
            small.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption()).decode(),
            small.private_bytes(pem, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode(),
        ],
        "in PEM": ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "\0"],
        "too long": ["x" * 5000],
    }
    for reason, pems in wrong.items():
        for one in pems:
            with pytest.raises(ValueError, match=reason):
                identities.read_public_key(one)


def test_a_huge_exponent() -> None:
    """A public key with a huge exponent, which would slow down verification, is refused."""
    good = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    for exponent, fits in ((65537, True), (2**64 + 13, False)):
        key = rsa.RSAPublicNumbers(exponent, good.public_numbers().n).public_key()
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        if fits:
            assert identities.read_public_key(pem).algorithm == "RS256"
        else:
            with pytest.raises(ValueError, match=r"must be|in PEM"):
                identities.read_public_key(pem)


def example(language: str) -> str:
    """The example in the documentation."""
    text = EMBEDDING.read_text("utf-8").partition("## Signed-in visitors")[2]
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_in_python() -> None:
    """The Python example of the documentation produces a valid identity."""
    written: dict[str, Any] = {}
    exec(example("python"), written)
    token = written["identity"]("žofie", SECRET.key.kid, SECRET.key.material)
    assert verify(token, SECRET, now=time.time()) == "žofie"


def test_the_example_in_node() -> None:
    """The JavaScript example does the same, if node is installed."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    call = f"console.log(identity('žofie', '{SECRET.key.kid}', '{SECRET.key.material}'))"
    done = subprocess.run(
        [node, "--input-type=module", "-e", f"{example('js')}\n{call}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert verify(done.stdout.strip(), SECRET, now=time.time()) == "žofie"
