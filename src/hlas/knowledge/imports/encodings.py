"""Decodes text whose declared encoding may be wrong."""

import codecs
import re

from hlas.knowledge.language import detect

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,300}charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
# Letters of Czech in Windows-1250 and ISO 8859-2 that are controls or signs in the other one.
_WINDOWS = re.compile(rb"[\x8a\x8d\x8e\x9a\x9d\x9e]")
_ISO = re.compile(
    rb"(?<=[A-Za-z\xc0-\xff])[\xa9\xab\xae\xb9\xbb\xbe]|[\xa9\xb9\xbe](?=[a-z\xe0-\xff])"
)


def decode(data: bytes, content_type: str = "") -> tuple[str, list[str]]:
    """The text, and warnings about its encoding."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, errors="replace"), []
    # Text in another encoding is hardly ever valid UTF-8, so this outweighs what is declared.
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError:
        pass
    declared = _find_declared(data, content_type)
    text = data.decode("utf-8", errors="replace")
    broken = text.count("\N{REPLACEMENT CHARACTER}")
    others = sum(not character.isascii() for character in text)
    # Few broken characters among many good ones: UTF-8 that somebody cut or mixed.
    if broken * 5 <= others:
        return text, [f"{broken} characters are not valid UTF-8 and were replaced"]
    name = _guess(data, declared)
    warnings = []
    if declared and declared != name:
        warnings = [f"declared as {declared}, read as {name}"]
    return data.decode(name, errors="replace"), warnings


def _find_declared(data: bytes, content_type: str) -> str:
    """The name of the encoding that the header or the document declares, if Python knows it."""
    head = data[:4096]
    meta = _META.search(head) or _XML.search(head)
    names = [found[1] for found in [_HEADER.search(content_type)] if found]
    names += [meta[1].decode("ascii", errors="replace")] if meta else []
    for name in names:
        try:
            found = codecs.lookup(name)
        except LookupError:
            continue
        # Codecs such as zip and hex are not encodings of text.
        if getattr(found, "_is_text_encoding", True) and found.name not in {"idna", "punycode"}:
            return _SPELLINGS.get(found.name, found.name)
    return ""


_SPELLINGS = {"cp1250": "windows-1250", "cp1252": "windows-1252", "iso8859-2": "iso-8859-2"}


def _guess(data: bytes, declared: str) -> str:
    """An encoding for text that is not UTF-8: that of Central Europe, unless it is not Czech."""
    central = "windows-1250"
    if not _WINDOWS.search(data) and (declared == "iso-8859-2" or _ISO.search(data)):
        central = "iso-8859-2"
    if declared in {"", "utf-8", "ascii", "iso8859-1", "windows-1252", central, "iso-8859-2"}:
        czech = detect(data.decode(central, errors="replace")) == "cs"
        return central if czech or declared in {central, "iso-8859-2"} else "windows-1252"
    return "windows-1252" if declared.startswith("utf") else declared
