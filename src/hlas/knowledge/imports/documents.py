"""Reads a document of any supported type."""

import re
import subprocess
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeAlias

import orjson

from hlas.knowledge.entries import LONGEST_URL, Entry, KnowledgeError
from hlas.knowledge.files import parse
from hlas.knowledge.imports import Document, Found
from hlas.knowledge.imports.processes import DOCUMENT_SECONDS, LARGEST_ANSWER
from hlas.knowledge.imports.text import read_text
from hlas.knowledge.language import Language

LARGEST_DOCUMENT = 20 * 2**20

Type: TypeAlias = Literal["html", "pdf", "docx", "md", "csv", "txt"]

_ENDINGS: dict[str, Type] = {
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "pdf": "pdf",
    "docx": "docx",
    "md": "md",
    "markdown": "md",
    "csv": "csv",
    "txt": "txt",
    "text": "txt",
}
_CONTENT_TYPES: dict[str, Type] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/plain": "txt",
}
_HTML = re.compile(
    rb"\s*(?:<!doctype html|<html|<head|<body|<\?xml[^>]*>\s*<(?:!doctype )?html)", re.IGNORECASE
)


def read_document(
    name: str,
    data: bytes,
    content_type: str = "",
    url: str = "",
    language: Language | None = None,
) -> Found:
    """Read html, pdf, docx, md, csv or txt; raises KnowledgeError with one line.

    It may take seconds: call it in a thread where an event loop runs.
    """
    with DocumentReader() as reader:
        found = reader.read(name, data, content_type, url, language).found
    if not found.entries:
        raise KnowledgeError(f"{name}: nothing to import: no questions and no text were found")
    return found


class DocumentReader:
    """Reads documents; those of complex types in a process of its own, which is started once."""

    def __init__(self, seconds: float = DOCUMENT_SECONDS) -> None:
        # For one document.
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        # A crawl that is cancelled closes it while a thread is about to start the process.
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                # What was not sent to it yet is lost.
                with suppress(OSError):
                    stream and stream.close()

    def read(
        self, name: str, data: bytes, content_type: str, url: str, language: Language | None
    ) -> Document:
        """Raises KnowledgeError; a document without text has no entries."""
        if len(data) > LARGEST_DOCUMENT:
            raise KnowledgeError(f"{name}: larger than {LARGEST_DOCUMENT // 2**20} MB")
        kind = find_type(name, data, content_type)
        url = url if len(url) <= LONGEST_URL else ""
        if kind in {"html", "pdf", "docx"}:
            request = {
                "kind": kind,
                "name": name,
                "content_type": content_type,
                "url": url,
                "language": language or "",
                "size": len(data),
            }
            return self._ask(name, orjson.dumps(request) + b"\n", data)
        # Our own formats, with keywords.
        if kind in {"csv", "md"}:
            file = name if name.lower().endswith((".csv", ".md")) else f"{name}.{kind}"
            return Document(Found(tuple(parse(file, data, language)), (), name))
        return Document(read_text(name, data, url, language))

    def _ask(self, name: str, head: bytes, data: bytes) -> Document:
        with self._lock:
            process = self._start()
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(self._seconds, give_up)
        timer.start()
        try:
            answer = _exchange(process, head + data)
        except (OSError, EOFError):
            self._discard()
            reason = (
                f"not read within {self._seconds:g} s" if is_late.is_set() else "cannot be read"
            )
            raise KnowledgeError(f"{name}: {reason}; it may be damaged") from None
        finally:
            timer.cancel()
        if "error" in answer:
            if answer.get("is_exhausted"):
                self._discard()
            raise KnowledgeError(f"{name}: {answer['error']}")
        return _make_document(answer)

    def _discard(self) -> None:
        with self._lock:
            self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._is_closed:
            raise RuntimeError("the reader is closed")
        if self._process is None or self._process.poll() is not None:
            self._stop()
            # Nothing of our environment: it may be secret.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "hlas.knowledge.imports.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        return self._process


def find_type(name: str, data: bytes, content_type: str = "") -> Type:
    """The type by the content, else by the name, else by the declared type."""
    if b"%PDF-" in data[:1024]:
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        # Other files of this kind are refused when they turn out to have no document.
        return "docx"
    if data.startswith((b"\xd0\xcf\x11\xe0", b"{\\rtf")):
        raise KnowledgeError(f"{name}: an old Word format; save it as .docx")
    if _HTML.match(data[:1024].removeprefix(b"\xef\xbb\xbf")):
        return "html"
    ending = name.lower().rpartition(".")[2] if "." in name else ""
    declared = _CONTENT_TYPES.get(content_type.partition(";")[0].strip().lower())
    # Servers know HTML, but send many other files as plain text.
    kind = declared if declared == "html" else _ENDINGS.get(ending) or declared
    if kind in {"pdf", "docx"}:
        raise KnowledgeError(f"{name}: not a {kind.upper()} file")
    if kind is None:
        raise KnowledgeError(
            f"{name}: unknown type of file; use .html, .pdf, .docx, .md, .csv or .txt"
        )
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise KnowledgeError(f"{name}: not a text file")
    return kind


def _exchange(process: subprocess.Popen[bytes], request: bytes) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    size = int.from_bytes(_read_exactly(process.stdout, 8))
    if size > LARGEST_ANSWER:
        raise EOFError
    answer: dict[str, Any] = orjson.loads(_read_exactly(process.stdout, size))
    return answer


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _make_document(answer: dict[str, Any]) -> Document:
    entries = tuple(map(Entry.from_json, answer["entries"]))
    found = Found(entries, tuple(answer["warnings"]), answer["title"])
    return Document(found, tuple(answer["links"]))
