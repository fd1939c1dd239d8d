"""The command line in processes: every error is one clear line."""

import io
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric import ec

from clusters import open_directory
from hlas import __version__ as hlas_version
from hlas import cli
from processes import environment, hlas, serve_process
from signing import Server


class Shell:
    """Commands on one database, from an empty directory, each in a separate process."""

    def __init__(self, cwd: Path, **variables: str) -> None:
        self.cwd = cwd
        self.variables = variables

    def run(self, *arguments: str) -> tuple[int, str, str]:
        done = hlas(*arguments, cwd=self.cwd, **self.variables)
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments: str) -> Any:
        status, stdout, stderr = self.run(*arguments, "--json")
        assert status == 0, stderr
        return orjson.loads(stdout)

    def fails(self, *arguments: str) -> str:
        """The one line that a failing command prints."""
        status, stdout, stderr = self.run(*arguments)
        assert status != 0, stdout
        assert "Traceback" not in stderr
        lines = [line for line in stderr.splitlines() if line.strip()]
        assert len(lines) == 1, stderr
        assert stdout == ""
        return lines[0]


class Inside(Shell):
    """The same in this process, because starting one costs more than most commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capsys = capsys
        self.monkeypatch = monkeypatch

    def run(self, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr("sys.argv", ["hlas", *arguments])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        stdout, stderr = self.capsys.readouterr()
        # As the interpreter handles SystemExit with a text.
        if isinstance(ended.value.code, str):
            return 1, stdout, f"{stderr}{ended.value.code}\n"
        return int(ended.value.code or 0), stdout, stderr


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, **environment(database_url))


@pytest.fixture
def inside(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Inside:
    monkeypatch.chdir(tmp_path)
    for name, value in environment(database_url).items():
        monkeypatch.setenv(name, value)
    return Inside(capsys, monkeypatch)


def commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), *path, name)
    else:
        yield " ".join(path), command


def test_help(tmp_path: Path) -> None:
    """Every command describes itself and its options, and has --json."""
    found = dict(commands(typer.main.get_command(cli.app)))
    wanted = {"serve", "migrate", "cleanup"}
    wanted |= {f"tenant {verb}" for verb in ("add", "list", "enable", "disable", "remove")}
    wanted |= {f"domain {verb}" for verb in ("add", "list", "remove")}
    assert wanted <= set(found)
    for name, command in found.items():
        assert command.help, name
        # A list of commands shows only the first sentence, and cuts a longer one off.
        assert len(re.split(r"\.\s", command.help)[0]) <= 64, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), (name, parameter.name)
            assert parameter.metavar or getattr(parameter, "is_flag", False), (name, parameter.name)
        options = {option for parameter in command.params for option in parameter.opts}
        # `serve` prints only text, `export` only lines of JSON.
        assert "--json" in options or name in {"serve", "export"}, name
    status, text, _ = Shell(tmp_path, **environment()).run("--help")
    assert status == 0
    assert "Usage: hlas" in text
    assert "..." not in text.partition("Commands:")[2].replace("remove ...", "")


def test_version_loads_no_command() -> None:
    """--version loads neither the database, the web framework nor any command."""
    script = "import sys, hlas.cli; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"asyncpg", "fastapi", "pydantic", "uvicorn", "jwt", "hlas.settings"})
    assert {name for name in loaded if name.startswith("hlas")} == {"hlas", "hlas.cli"}


def test_misspelled(inside: Inside) -> None:
    """An unknown command is one line that refers to --help, and exit status 2."""
    for arguments, told in (
        (("tenant", "add", "Shop"), "missing option '--slug'; see `hlas tenant add --help`"),
        (("tenants",), "no such command 'tenants'"),
        (("tenant", "list", "--nothing"), "no such option: --nothing"),
        (("tenant", "identity", "shop", "sometimes"), "'off', 'optional', 'required'"),
        (("serve", "--port", "many"), "'--port'"),
    ):
        line = inside.fails(*arguments)
        assert line.startswith("hlas: ")
        assert told in line
        assert inside.run(*arguments)[0] == 2
    assert inside.run("--version")[:2] == (0, f"hlas {hlas_version}\n")


def test_wrong_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In another directory a command says where it looked, and creates no second database."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "DATA_DIR", "WIDGET_SESSION_JWT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    inside = Inside(capsys, monkeypatch)
    for arguments in (
        ("tenant", "list"),
        ("domain", "add", "shop", "shop.example"),
        ("admin-key", "add", "me"),
        ("cleanup",),
        ("secret", "rotate"),
        ("backup", "file"),
    ):
        assert inside.fails(*arguments) == (
            f"hlas: there is no database in {tmp_path}/.hlas; go to the directory Hlas runs in, "
            "or set DATA_DIR"
        )
    assert list(tmp_path.iterdir()) == []


def test_signed_in_visitors(inside: Inside, tmp_path: Path) -> None:
    """Keys are added, listed and removed, the mode is set; a secret is shown only once."""
    inside.json("tenant", "add", "Shop", "--slug", "shop")
    status, out, _ = inside.run("tenant", "identity", "shop", "required")
    assert (status, "hlas visitor-key add shop" in out) == (0, True)
    assert inside.json("tenant", "list")[0]["identity_mode"] == "required"
    status, out, err = inside.run("visitor-key", "add", "shop")
    assert (status, len(out.strip()), err.count("\n")) == (0, 64, 1)
    pem, server = tmp_path / "public.pem", Server(ec.generate_private_key(ec.SECP256R1()))
    pem.write_text(server.key.material)
    added = inside.json("visitor-key", "add", "shop", "--public-key", str(pem))
    assert (added["kid"], added["algorithm"]) == (server.key.kid, "ES256")
    assert inside.run("visitor-key", "add", "shop", "--public-key", str(pem))[0] == 0
    listed = inside.json("visitor-key", "list", "shop")
    assert [one["algorithm"] for one in listed] == ["HS256", "ES256"]
    assert out.strip() not in str(listed)
    assert server.key.kid in inside.run("visitor-key", "list", "shop")[1]
    assert inside.json("visitor-key", "remove", "shop", server.key.kid)["kid"] == server.key.kid
    assert "no such key" in inside.fails("visitor-key", "remove", "shop", server.key.kid)
    pem.write_text("-----BEGIN PRIVATE KEY-----")
    assert "private key" in inside.fails("visitor-key", "add", "shop", "--public-key", str(pem))
    missing = str(tmp_path / "missing")
    assert "cannot be read" in inside.fails("visitor-key", "add", "shop", "--public-key", missing)
    for wrong in (("visitor-key", "list", "no-such"), ("tenant", "identity", "no-such", "off")):
        assert "there is no tenant" in inside.fails(*wrong)
    assert inside.run("tenant", "identity", "shop", "sometimes")[0] != 0


def test_tenants(inside: Inside) -> None:
    """Tenants and domains: add, list, disable, enable, remove; JSON with --json."""
    assert inside.json("tenant", "list") == []
    added = inside.json(
        "tenant", "add", "My shop", "--slug", "shop", "--domain", "Shop.Example",
        "--domain", "*.háčky.example",
    )  # fmt: skip
    assert sorted(added["domains"]) == ["*.xn--hky-ela4t.example", "shop.example"]
    assert "Disabled shop." in inside.run("tenant", "disable", "shop")[1]
    assert inside.json("tenant", "list")[0]["is_active"] is False
    assert inside.json("tenant", "enable", "shop") == {"slug": "shop", "is_active": True}
    assert inside.json("domain", "add", "shop", "localhost")["domain"] == "localhost"
    assert inside.json("domain", "remove", "shop", "SHOP.example.")["domain"] == "shop.example"
    assert inside.json("domain", "list", "shop") == ["*.xn--hky-ela4t.example", "localhost"]
    header, line = inside.run("tenant", "list")[1].splitlines()
    assert (header.split()[0], line.split()[0]) == ("SLUG", "shop")
    assert inside.json("tenant", "remove", "shop", "--yes") == {"slug": "shop"}
    assert inside.json("tenant", "list") == []


def test_next_steps(inside: Inside) -> None:
    """Adding a tenant prints the next steps, with its own names."""
    status, out, _ = inside.run("tenant", "add", "A", "--slug", "a", "--domain", "*.a.example")
    assert status == 0
    for word in ("Added a (*.a.example).", "/widget.js", "knowledge import FILE --tenant a"):
        assert word in out
    assert "doctor --page https://www.a.example --url https://" in out
    out = inside.run("tenant", "add", "B", "--slug", "b", "--domain", "http://127.0.0.1:81")[1]
    assert "doctor --page http://127.0.0.1:81 --url http://127.0.0.1:8000" in out
    assert "hlas domain add c " in inside.run("tenant", "add", "C", "--slug", "c")[1]


def test_shared_pages(inside: Inside) -> None:
    """If entries of two tenants match a page, only the tenant that loses it gets a note."""
    inside.json("tenant", "add", "One", "--slug", "one", "--domain", "localhost")
    for slug, domain, notes in (
        ("two", "http://localhost:8190", []),
        ("three", "localhost:8190", ["http://localhost:8190 of two"]),
        ("four", "http://localhost", ["localhost:8190 of three", "http://localhost:8190 of two"]),
        ("five", "a.shop.example", []),
        ("six", "*.shop.example", ["a.shop.example of five"]),
        ("seven", "b.shop.example", []),
    ):
        inside.run("tenant", "add", slug, "--slug", slug)
        status, _, err = inside.run("domain", "add", slug, domain)
        told = [
            line.removeprefix("note: ").partition(" takes precedence")[0]
            for line in err.splitlines()
        ]
        assert (status, sorted(told)) == (0, sorted(notes)), err
    line = inside.fails("domain", "add", "two", "localhost")
    assert "localhost belongs to one" in line
    assert "`hlas domain remove one localhost`" in line
    assert "localhost:5500" in line
    assert "on its list already" in inside.fails("domain", "add", "one", "localhost")


def test_mistakes(inside: Inside) -> None:
    """A mistake is one clear line and a non-zero exit status, and changes nothing."""
    inside.json("tenant", "add", "One", "--slug", "one", "--domain", "one.example")
    before = inside.json("tenant", "list")
    for arguments, word in (
        (("tenant", "add", "Again", "--slug", "one"), "one"),
        (("tenant", "add", "Bad", "--slug", "No Good"), "slug"),
        (("tenant", "add", "", "--slug", "empty"), "name"),
        (("tenant", "add", "Thief", "--slug", "thief", "--domain", "one.example"), "domain"),
        (("domain", "add", "one", "not a domain"), "domain"),
        (("domain", "add", "one", "*.com"), "wildcard"),
        (("domain", "remove", "one", "two.example"), "domain"),
        (("tenant", "disable", "nobody"), "nobody"),
    ):
        line = inside.fails(*arguments)
        assert line.startswith("hlas: ")
        assert word in line, line
    assert inside.json("tenant", "list") == before
    inside.monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert inside.run("tenant", "remove", "one")[0] != 0
    assert inside.json("tenant", "list") == before


def test_migrate_and_cleanup(inside: Inside) -> None:
    """Both can be repeated, and print what they did."""
    revision = inside.json("migrate")["revision"]
    assert f"revision {revision}" in inside.run("migrate")[1]
    assert inside.json("cleanup")["idempotency_keys"] == 0


def test_bad_environment(tmp_path: Path) -> None:
    """Edge case 31: an invalid value, no secret or no server is one line with the variable."""
    secret = {"WIDGET_SESSION_JWT_SECRET": "x" * 32}
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"postgresql://a:swordfish@127.0.0.1:{closed.getsockname()[1]}/hlas"
        for variables, name in (
            ({"RATE_LIMIT_SESSION_IP": "lots"}, "RATE_LIMIT_SESSION_IP"),
            ({"TRUSTED_PROXIES": "everybody"}, "TRUSTED_PROXIES"),
            ({"LOG_LEVEL": "loud"}, "LOG_LEVEL"),
            ({"DATABASE_URL": "mysql://x"}, "DATABASE_URL"),
            ({"DATABASE_URL": nobody}, "WIDGET_SESSION_JWT_SECRET"),
            ({"DATABASE_URL": nobody, **secret}, "DATABASE_URL"),
            ({"DATABASE_URL": "postgresql://nobody.invalid/x", **secret}, "DATABASE_URL"),
        ):
            shell = Shell(tmp_path, **environment(), **variables)
            line = shell.fails("serve", "--port", "0")
            assert line.startswith(f"hlas: {name}: "), line
            assert "swordfish" not in line
    assert not (tmp_path / ".hlas").exists(), "a start that failed left something behind"


def test_port_in_use(shell: Shell) -> None:
    """A port in use is one line with a hint, before anything is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = shell.fails("serve", "--port", port)
    assert port in line
    assert "--port (make run PORT=" in line


def test_database_refuses(database_url: str, tmp_path: Path) -> None:
    """A wrong password or database is one line without the password."""
    head, _, query = database_url.partition("?")
    wrong = re.sub(r":[^:@/]+@", ":swordfish@", head)
    missing = f"{head.rpartition('/')[0]}/missing"
    for url in (f"{wrong}?{query}", f"{missing}?{query}"):
        line = Shell(tmp_path, **environment(url)).fails("migrate")
        assert line.startswith("hlas: DATABASE_URL: cannot connect: ")
        assert "swordfish" not in line


async def test_embedded() -> None:
    """Commands work on the embedded database while the server runs and while it does not."""
    with open_directory() as directory:
        data = str(directory / "data")
        shell = Shell(directory, **environment(), DATA_DIR=data)
        _, _, told = shell.run("tenant", "add", "First", "--slug", "first")
        assert f"Creating a database in {data}." in told
        async with serve_process(DATA_DIR=data) as served:
            shell.json("tenant", "add", "Shop", "--slug", "shop", "--domain", "shop.example")
            origin = {"Origin": "https://shop.example"}
            assert (await served.client.post("/widget/session", headers=origin)).status_code == 200
            second = shell.fails("serve", "--port", "0")
            assert data in second
            assert await served.stop() == 0
            lines = served.output().decode().splitlines()
        assert f"  data      {data}" in lines
        assert lines[-1] == "Hlas has stopped."
        slugs = {tenant["slug"] for tenant in shell.json("tenant", "list")}
        assert slugs == {"demo", "first", "shop"}
