"""The files in ops/: dashboards, alerts, and samples for proxies and services.

Fails with these defects planted: a metric that does not exist, a label it does not have, a
label's value that is never set, a proxy sample without X-Forwarded-For.
"""

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

import log_scan
import proxies
from factories import Site
from hlas.doctor import website
from hlas.doctor.website import Service
from hlas.errors import HlasError
from hlas.knowledge.embedding.client import FAILURES
from hlas.settings import Settings

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"

# A metric, with its labels in braces if there are any.
_USED = re.compile(r"\b(hlas_\w+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")
_LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
# Labels that Prometheus itself adds.
_THEIRS = {"job", "instance", "le"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with the name of its panel or alert."""
    board = json.loads((OPS / "grafana" / "hlas.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    for group in yaml.safe_load((OPS / "prometheus" / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest_asyncio.fixture
async def metrics(answered: Site) -> AsyncIterator[dict[str, set[str]]]:
    """The labels of every metric, from a server that has handled some of everything."""
    site = answered
    await site.send("hello", key="a-key-of-mine")
    await site.live.client.post("/widget/messages/assistant", headers=site.headers())
    await site.send("hello", key="a-key-of-mine")
    await site.send("x" * 3000)
    await site.live.client.get("/widget/whoami")
    text = (await site.live.client.get("/metrics")).text
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("hlas_"):
            name, _, rest = line.partition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    yield found


async def test_every_metric_exists(metrics: dict[str, set[str]]) -> None:
    """Dashboards and alerts use existing metrics with existing labels."""
    used = set()
    for title, expression in expressions():
        assert expression.count("(") == expression.count(")"), title
        for name, selector in _USED.findall(expression):
            assert name in metrics, f"{title}: there is no {name}"
            used.add(name)
            labels = {label for label, _, _ in _LABEL.findall(selector or "")}
            assert labels - _THEIRS <= metrics[name], f"{title}: {name} has no such label"
        grouped = {word.strip() for words in _BY.findall(expression) for word in words.split(",")}
        known = [metrics[name] for name, _ in _USED.findall(expression)]
        assert grouped - _THEIRS <= set().union(*known), title
    families = {re.sub(r"_(bucket|sum|count|created|total)$", "", name) for name in metrics}
    shown = {re.sub(r"_(bucket|sum|count|created|total)$", "", name) for name in used}
    assert families - shown == set(), "a metric that nobody sees"


def test_values_of_labels_exist(settings: Settings) -> None:
    """Outcomes and reasons in alerts are error codes, or values that the source counts."""
    codes = {"created", "hit", "miss", "conflict", "skipped", "failed", *FAILURES}
    kinds = [HlasError]
    while kinds:
        kind = kinds.pop()
        codes.add(kind.code)
        kinds += kind.__subclasses__()
    for title, expression in expressions():
        for label, _, value in _LABEL.findall(expression):
            if label in {"outcome", "reason"}:
                assert set(value.split("|")) <= codes, title


def test_alerts_say_what_to_do() -> None:
    """Every alert has a summary, a severity and an action."""
    rules = [
        rule
        for group in yaml.safe_load((OPS / "prometheus" / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) >= 8
    for rule in rules:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["for"]
        assert rule["annotations"].keys() == {"summary", "action"}


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("promtool", ("check", "rules", "ops/prometheus/alerts.yml")),
        ("caddy", ("validate", "--adapter", "caddyfile", "--config", "ops/caddy/Caddyfile")),
    ],
)
def test_checks_of_the_programs(program: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """The programs' own checks, if they are installed, accept our samples."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [found, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.settings(trusted_proxies="127.0.0.1")
@pytest.mark.parametrize("name", ["nginx", "caddy", "haproxy"])
async def test_proxy(site: Site, name: str) -> None:
    """Edge case 25: sending works through the sample, and forged headers have no effect."""
    port = int(site.live.url.rpartition(":")[2])
    with proxies.run_proxy(name, port) as proxy:
        url = proxy.url
        seen = await website.check_address(Service(url, log_scan.SECRET))
        assert (seen.status, seen.found) == ("ok", "a request from here is limited as 127.0.0.1")
        spoofed = {**site.headers(), "X-Forwarded-For": "203.0.113.9", "X-Request-Id": "mine"}
        answer = await site.live.client.post(
            f"{url}/widget/messages", headers=spoofed, json={"text": "hello"}
        )
        assert answer.status_code == 200
        # Only nginx sets its own request id.
        assert (answer.headers["x-request-id"] == "mine") is (name != "nginx")
        assert answer.headers.get_list("access-control-allow-origin") == [site.origin]
        origin = website.origin_of(site.origin)
        assert origin is not None
        assert (await website.check_cors(Service(url, ""), origin)).status == "ok"
        large = await site.live.client.post(
            f"{url}/widget/messages", headers=site.headers(), json={"text": "x" * 100_000}
        )
        assert (large.status_code, large.json()["detail"]) == (413, "payload_too_large")
        assert (await site.live.client.get(f"{url}/metrics")).status_code == 200


def test_compose() -> None:
    """Nothing runs as root with a writable file system, and no secret has a default."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service: dict[str, Any] = compose["services"]["hlas"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    for name, one in compose["services"].items():
        for variable, value in one.get("environment", {}).items():
            if "PASSWORD" in variable or "SECRET" in variable or "URL" in variable:
                secretless = variable == "REDIS_URL"
                assert secretless or ":?" in value, (name, variable)
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
    settings = {name.upper() for name in Settings.model_fields}
    assert set(service["environment"]) <= settings
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "\nUSER hlas\n" in dockerfile
    makefile = (ROOT / "Makefile").read_text()
    [version] = re.findall(r"UV_VERSION := (\S+)", makefile)
    assert f"uv=={version}" in dockerfile


def test_systemd_unit() -> None:
    """The unit starts the existing command, unprivileged, with existing settings."""
    unit = (OPS / "systemd" / "hlas.service").read_text()
    assert "\nUser=hlas\n" in unit
    assert "\nNoNewPrivileges=yes\n" in unit
    settings = {name.upper() for name in Settings.model_fields}
    assert set(re.findall(r"^Environment=(\w+)=", unit, re.MULTILINE)) <= settings
    program = shutil.which("systemd-analyze")
    if program is not None:
        done = subprocess.run(
            [program, "verify", OPS / "systemd" / "hlas.service"],
            capture_output=True,
            text=True,
            check=False,
        )
        complaints = [
            line
            for line in done.stderr.splitlines()
            if "hlas.service" in line and "/opt/" not in line
        ]
        assert complaints == []
