"""Parses forms with files, as browsers send them."""

import re
from dataclasses import dataclass

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_PARAMETER = r'(?<![a-z])%s="([^"]*)"'
_NAME = re.compile(_PARAMETER % "name")
_FILENAME = re.compile(_PARAMETER % "filename")
# What browsers escape in names.
_ESCAPED = {"%22": '"', "%0D": "\r", "%0A": "\n"}


@dataclass(frozen=True, slots=True)
class File:
    """A file of a form; the name is what the browser says."""

    field: str
    name: str
    data: bytes


def parse(body: bytes, content_type: str, most: int) -> tuple[list[tuple[str, str]], list[File]]:
    """Fields and files; fields without a chosen file are left out. Raises ValueError."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise ValueError("no boundary")
    delimiter = b"\r\n--" + (found[1] or found[2]).encode()
    opening, *parts = (b"\r\n" + body).split(delimiter, most + 2)
    if opening or not parts or not parts[-1].startswith(b"--") or len(parts) > most + 1:
        raise ValueError("not a form")
    fields: list[tuple[str, str]] = []
    files: list[File] = []
    for part in parts[:-1]:
        head, separator, data = part.partition(b"\r\n\r\n")
        name, filename = _read_head(head.decode())
        if not separator:
            raise ValueError("a part without content")
        if filename is None:
            fields.append((name, data.decode()))
        elif filename:
            files.append(File(name, filename, data))
    return fields, files


def _read_head(head: str) -> tuple[str, str | None]:
    for line in head.split("\r\n"):
        if line.lower().startswith("content-disposition:"):
            name, filename = _NAME.search(line), _FILENAME.search(line)
            if name is not None:
                return _unescape(name[1]), filename and _unescape(filename[1])
    raise ValueError("a part without a name")


def _unescape(text: str) -> str:
    for escaped, letter in _ESCAPED.items():
        text = text.replace(escaped, letter)
    return text
