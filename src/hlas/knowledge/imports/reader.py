"""The process that parses documents of strangers, started by documents.py.

Parsers of hostile files may hang, need endless memory or crash: 1 MB of nested HTML keeps the
parser busy for minutes. Here that harms nobody.
"""

import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

import orjson

from hlas.knowledge.entries import KnowledgeError
from hlas.knowledge.imports import Document
from hlas.knowledge.imports.docx import read_docx
from hlas.knowledge.imports.html import read_html
from hlas.knowledge.imports.pdf import read_pdf
from hlas.knowledge.imports.processes import DOCUMENT_SECONDS, LARGEST_ANSWER, limit
from hlas.knowledge.language import LANGUAGES

LARGEST_MEMORY = 768 * 2**20

LENGTH = struct.Struct("!Q")


def main() -> None:
    """Answer requests until the input ends."""
    limit(resource.RLIMIT_AS, LARGEST_MEMORY)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 0)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while head := requests.readline():
        request = orjson.loads(head)
        data = requests.read(request["size"])
        # Kills the process even if its starter is gone, and even in the middle of C code.
        signal.alarm(DOCUMENT_SECONDS + 1)
        answer = orjson.dumps(_answer(request, data))
        signal.alarm(0)
        _send(answers, answer)


def _send(answers: BinaryIO, answer: bytes) -> None:
    if len(answer) > LARGEST_ANSWER:
        answer = orjson.dumps({"error": "more text in it than can be imported"})
    answers.write(LENGTH.pack(len(answer)) + answer)
    answers.flush()


def _answer(request: dict[str, str], data: bytes) -> dict[str, object]:
    try:
        document = _read(request, data)
    except KnowledgeError as error:
        return {"error": str(error).removeprefix(f"{request['name']}: ")}
    except MemoryError:
        return {"error": "needs too much memory to be read", "is_exhausted": True}
    # The parsers are not ours: whatever they raise, the document is at fault.
    except Exception:  # noqa: BLE001
        return {"error": "cannot be read; it may be damaged"}
    found = document.found
    return {
        "entries": found.entries,
        "warnings": found.warnings,
        "title": found.title,
        "links": document.links,
    }


def _read(request: dict[str, str], data: bytes) -> Document:
    name, url = request["name"], request["url"]
    language = next((one for one in LANGUAGES if one == request["language"]), None)
    if request["kind"] == "html":
        return read_html(name, data, request["content_type"], url, language)
    found = (read_pdf if request["kind"] == "pdf" else read_docx)(name, data, url, language)
    return Document(found)


if __name__ == "__main__":
    main()
    # Nothing to clean up, and destructors of damaged documents may take long.
    os._exit(0)
