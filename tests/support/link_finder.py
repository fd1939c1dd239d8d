"""Finds what any front end could take for a link, an image or a tag, and rather too much."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

import idna
from linkify_it import LinkifyIt
from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN = MarkdownIt("commonmark", {"linkify": True, "html": True}).enable(
    ["linkify", "table", "strikethrough"]
)
# Let unsafe addresses through, too: they are to be found.
_MARKDOWN.validateLink = bool  # type: ignore[assignment,method-assign]
_LINKIFY = LinkifyIt()

# GFM's autolinks, which go on until white space, and those of the widget.
_GFM = re.compile(r"(?:https?:|ftp:|www\.|(?<!:)//(?=[\w-]+\.\w))[^\s<]*", re.IGNORECASE)
_WIDGET = re.compile(r"https?://[^\s<>\"'`*()\[\]]*[^\s<>\"'`*()\[\].,:;!?]")
_WIDGET_LINK = re.compile(r"\[([^\[\]\n]+)\]\(([^()\s]+)\)")
# With these in a host a browser refuses the address (WHATWG URL, forbidden domain code points).
_FORBIDDEN = re.compile(r"[\x00-\x20#/:<>?@\[\\\]^|%\x7f]")
_CLOSERS = ".,;:!?'\")]}>*_|~`\u00bb\u201c\u201d\u2018\u2019\u2026"
_TAG = re.compile(r"<[a-z/!?]", re.IGNORECASE)


def find_links(text: str) -> Iterator[str]:
    """Yield the address of every link, as written."""
    for token in _walk(_MARKDOWN.parse(text)):
        if token.type == "link_open" and not _is_plain_mail(token):
            yield str(token.attrGet("href"))
    for plain in _list_texts(_MARKDOWN.parse(text)):
        for match in _LINKIFY.match(plain) or ():
            if not (match.schema == "mailto:" and not match.raw.lower().startswith("mailto:")):
                yield match.url
    for pattern in (_GFM, _WIDGET):
        for found in pattern.finditer(text):
            yield found[0].rstrip(_CLOSERS)
    for found in _WIDGET_LINK.finditer(text):
        yield found[2]


def has_image_or_tag(text: str) -> bool:
    types = {token.type for token in _walk(_MARKDOWN.parse(text))}
    return bool(types & {"image", "html_inline", "html_block"} or "![" in text or _TAG.search(text))


def find_host(url: str) -> str | None:
    """Return the host that a browser would go to; None: the address is relative or invalid."""
    url = re.sub(r"[\t\n\r]", "", url).replace("\\", "/")
    found = re.match(r"(?:[a-z][a-z0-9+.-]*:)?(/*)", url, re.IGNORECASE)
    assert found is not None
    if ":" not in found[0] and len(found[1]) < 2 and not url.lower().startswith("www."):
        return None
    authority = re.split(r"[/?#]", url[found.end() :], maxsplit=1)[0]
    host = re.sub(r":[0-9]*$", "", authority.rpartition("@")[2]).lower()
    # A program may take marks behind the host for a part of it.
    host = unquote(host).rstrip("`~")
    if _FORBIDDEN.search(host):
        return None
    try:
        return idna.encode(host, uts46=True).decode()
    except (idna.IDNAError, UnicodeError):
        return host


def _is_plain_mail(token: Token) -> bool:
    return token.info == "auto" and str(token.attrGet("href")).startswith("mailto:")


def _walk(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or [])


def _list_texts(tokens: list[Token]) -> Iterator[str]:
    """Yield texts without escapes and entities, as programs see them that search after parsing."""
    for token in tokens:
        plain = ""
        for child in token.children or []:
            if child.type in {"text", "text_special"}:
                plain += child.content
            else:
                yield plain
                plain = child.content if child.type == "code_inline" else ""
        yield plain
        if token.type in {"fence", "code_block"}:
            yield token.content
