"""How the script and the demo page are served."""

import gzip

import httpx
import pytest

from factories import Live
from hlas.api.assets import accepts_gzip, matches
from hlas.web import assets


@pytest.mark.parametrize("pinned", [False, True])
async def test_the_script_is_for_every_site(live_server: Live, *, pinned: bool) -> None:
    """Any origin may load it, with or without integrity, also under cross-origin isolation."""
    path = assets.widget_path(pinned=pinned)
    answer = await live_server.client.get(path, headers={"Origin": "https://anywhere.example"})
    assert answer.status_code == 200
    assert answer.content == assets.widget().body
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "nosniff" in answer.headers["x-content-type-options"]
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert ("immutable" in answer.headers["cache-control"]) is pinned
    assert "set-cookie" not in answer.headers


async def test_each_form_has_its_own_tag_and_304_saves_the_body(live_server: Live) -> None:
    """Compressed and plain bytes have different strong ETags; either is recognised again."""
    forms: dict[str, httpx.Response] = {}
    for coding in ("gzip", "identity"):
        forms[coding] = await live_server.client.get(
            "/widget.js", headers={"Accept-Encoding": coding}
        )
    assert forms["gzip"].headers["content-encoding"] == "gzip"
    assert "content-encoding" not in forms["identity"].headers
    assert int(forms["gzip"].headers["content-length"]) == len(assets.widget().compressed)
    assert forms["gzip"].headers["etag"] != forms["identity"].headers["etag"]
    for coding, form in forms.items():
        assert "Accept-Encoding" in form.headers["vary"]
        again = await live_server.client.get(
            "/widget.js",
            headers={"Accept-Encoding": coding, "If-None-Match": form.headers["etag"]},
        )
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == form.headers["etag"]
        assert "max-age" in again.headers["cache-control"]


async def test_another_version_is_not_found(live_server: Live) -> None:
    """An immutable address never serves other bytes."""
    answer = await live_server.client.get("/widget/0123456789abcdef/widget.js")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "not_found"


async def test_the_demo_page_has_a_strict_policy(live_server: Live) -> None:
    """Nothing inline, nothing foreign, no framing; head requests work."""
    for path in ("/demo", "/demo/cs", "/demo/en"):
        answer = await live_server.client.get(path)
        policies = answer.headers.get_list("content-security-policy")
        assert len(policies) == 1
        assert "default-src 'none'" in policies[0]
        assert "unsafe" not in policies[0]
        assert "frame-ancestors 'none'" in policies[0]
        assert (await live_server.client.head(path)).content == b""
    home = await live_server.client.get("/")
    assert (home.status_code, home.headers["location"]) == (307, "/demo")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("cs", "cs"),
        ("sk-SK,sk;q=0.9,en;q=0.8", "cs"),
        ("CS-cz", "cs"),
        ("en-GB,en;q=0.9,cs;q=0.8", "en"),
        ("de", "en"),
        ("csb", "en"),
        ("", "en"),
    ],
)
async def test_the_demo_page_speaks_the_browsers_language(
    live_server: Live, header: str, language: str
) -> None:
    """Czech is for Czech and Slovak browsers only; caches are told why."""
    answer = await live_server.client.get("/demo", headers={"Accept-Language": header})
    assert f'<html lang="{language}">' in answer.text
    assert "Accept-Language" in answer.headers["vary"]
    assert "Accept-Encoding" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("GZIP", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("", False),
    ],
)
def test_accept_encoding(header: str, *, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@pytest.mark.parametrize(
    ("header", "matched"),
    [
        ('"v"', True),
        ('W/"v-gzip"', True),
        ('"a", "v"', True),
        ("*", True),
        ('"w"', False),
        ("", False),
    ],
)
def test_if_none_match(header: str, *, matched: bool) -> None:
    assert matches(header, "v") is matched


def test_compression_is_lossless() -> None:
    for name in ("index.cs.html", "index.en.html", "demo.css", "demo.js"):
        asset = assets.demo(name)
        assert gzip.decompress(asset.compressed) == asset.body
