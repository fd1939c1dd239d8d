"""Removes links to foreign hosts from the words of an answer."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from hlas.outbound.destinations import Destination
from hlas.visitors.origins import AllowedDomain

# What stays in place of a removed address. It is not empty: its neighbours must not join.
REMOVED = "…"
# The longest word or construct that is held back.
LONGEST_HELD = 2000

# Marks of validated Markdown in the text between the stages; a model's text cannot contain them.
LINK, LINK_URL, LINK_END, CITE, CITE_END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3", "\ufdd4"

# Programs make links of bare names with these endings.
_ENDINGS = frozenset(
    """
    ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt
    bv bw by bz ca cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg
    er es et eu fi fj fk fm fo fr ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn
    hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li
    lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne
    nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb
    sc sd se sg sh si sj sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr
    tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
    aero app asia bank bet bid biz blog buzz cam casino cfd click cloud club com coop cyou dev edu
    finance fun fyi gdn gov guru icu info kim life link live loan lol ltd men mobi mom monster
    museum name net ninja onion online ooo org page party porn pro pub quest racing ren rest rip
    rocks sbs sex shop site space store stream surf team tech today top trade tube uno vip wang web
    webcam website win work world wtf xxx xyz zone рф
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)

# Where a link may begin within a word. Possessive and anchored, so that searching stays linear.
_START = re.compile(
    r"(?P<web>https?:)"
    r"|(?P<scheme>(?:java|vb)script:(?=.)|data:(?=[\w+.-]*+[/,;])|(?:mailto|xmpp):|ftps?:[/\\])"
    r"|(?::[/\\]{2}|(?<![/\\:])[/\\]{2,}+(?=[^\s/\\]*?[.@][^\s.]))"
    r"|www\.(?![\w-]|$)",
    re.IGNORECASE,
)
# Programs take symbols for letters of a host: the name may begin with a dot after one of them.
_NAME = re.compile(r"(?:(?<![\w-])[\w-]++|(?<=[$+=^`|~\u0080-\U0010ffff])(?=\.))(?:\.[\w-]++)++")
_WEB = re.compile(
    r"https?://[\w.-]++(?::[0-9]{1,5}(?![0-9]))?(?P<path>[/?#][\w.~%!$&+,=:@/?#-]*+)?",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?::[0-9]{1,5}(?![0-9]))?(?:[/?#][\w.~%!$&+,=:@/?#-]*+)?")
# A second address within an address: another program may take it for one of its own.
_NESTED = re.compile(r"//|\\|www\.|(?:https?|ftps?|mailto|xmpp|javascript|data):", re.IGNORECASE)
_ENDING = re.compile(r"[a-z]{2,}|xn--[a-z0-9-]+", re.IGNORECASE)
_ENTITY = re.compile(r"&(?=#?\w{1,32};)")
_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(r"\+?[0-9](?:[ \u00a0-]?[0-9]){5,14}")
# Browsers read these as dots in a host.
_DOTS = str.maketrans("\u3002\uff61", "..")
# Ordinary punctuation that Unicode takes apart, but that hides nothing.
_SPACES = str.maketrans("\u00a0\u202f\u2009\u2026", "    ")
_DELIMITERS = re.compile(f"([ \t\n{LINK}{LINK_URL}{LINK_END}{CITE}{CITE_END}])")
_CLOSERS = ".,;:!?'\")]}>*_~`\u00bb\u201c\u201d\u2018\u2019\u2026"
_TRAILING = ".,:!?_~'"
_AFTER_ADDRESS = f"{_CLOSERS}<|"


class Links:
    """Decides which addresses an answer may contain."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts: set[str] = set()
        self._parents: set[str] = set()
        self._contacts: set[str] = set()
        for entry in hosts:
            try:
                domain = AllowedDomain.parse(entry)
            except ValueError:
                continue
            (self._parents if domain.is_wildcard else self._hosts).add(domain.host)

    def allow(self, url: str, text: str) -> None:
        """Allow the host of a passage's address, and hosts and contacts that stand in its text."""
        for address in (url, *(found for found, _ in _find_web(text))):
            destination = Destination.parse(address)
            if destination is not None:
                self._hosts.add(destination.origin.host)
        self._contacts.update(found.lower() for found in _EMAIL.findall(text))
        self._contacts.update(re.sub(r"[^0-9+]", "", found) for found in _PHONE.findall(text))

    def accept(self, url: str) -> str | None:
        """Return the target of a Markdown link as it may be shown, or None."""
        scheme, _, contact = url.partition(":")
        if scheme.lower() in {"mailto", "tel"}:
            return url if contact.lower() in self._contacts else None
        found = _WEB.fullmatch(url)
        if found is None or not self._allows_web(url, found["path"] or ""):
            return None
        # Behind a slash nothing can change the host, should a program not see the link's end.
        return url if found["path"] else f"{url}/"

    def clean(self, word: str) -> str:
        """Remove foreign addresses from a word, which contains no white space."""
        if not _is_suspect(word):
            return word
        word = _ENTITY.sub("& ", word)
        if not word.isascii() and _hides(_normalise(word), word):
            return REMOVED
        if "\\" in word and (
            _hides(_ESCAPE.sub("", word), word) or _hides(word.replace("\\", "/"), word)
        ):
            return REMOVED
        out = []
        position = 0
        for found in _find_starts(word):
            if found.start() < position:
                continue
            out.append(word[position : found.start()])
            text, position = self._judge(word, found)
            out.append(text)
        return "".join(out) + word[position:]

    def _judge(self, word: str, found: re.Match[str]) -> tuple[str, int]:
        """Return what replaces the link that begins here, and where to go on."""
        if found.re is _NAME:
            return self._judge_name(word, found)
        if found["web"]:
            return self._judge_web(word, found.start())
        if found["scheme"] and found[0].lower() == "mailto:":
            contact = _EMAIL.match(word, found.end())
            if contact and contact[0].lower() in self._contacts and _ends(word, contact.end()):
                return word[found.start() : contact.end()], contact.end()
        return _remove(word)

    def _judge_web(self, word: str, start: int) -> tuple[str, int]:
        found = _WEB.match(word, start)
        if found is None:
            return _remove(word)
        url = found[0].rstrip(_TRAILING)
        end = start + len(url)
        path = url[found.start("path") - start :] if found["path"] else ""
        if not self._allows_web(url, path):
            return _remove(word)
        if _ends(word, end):
            return url, end
        # The host must not go on: `https://good.example:x@evil.example`.
        if not path and _continues_host(word[end]):
            return _remove(word)
        return f"{url} ", end

    def _judge_name(self, word: str, found: re.Match[str]) -> tuple[str, int]:
        name, end = found[0], found.end()
        if _is_mail(word, found):
            return name, end
        label = name.rpartition(".")[2]
        is_known = _is_known(label)
        after = word[end : end + 2]
        is_link = (
            "www." in name.lower()
            or (after[:1] == "/" and _ENDING.fullmatch(label) is not None)
            or (is_known and after[:1] in {":", "?", "#", "@"} and not _ends(word, end))
        )
        if not (is_link or is_known):
            return name, end
        if self._allows_host(name):
            path = _PATH.match(word, end)
            stop = path.end() if path else end
            while stop > end and word[stop - 1] in _TRAILING:
                stop -= 1
            if not _ends(word, stop) and _continues_host(word[stop]):
                return _remove(word)
            # What follows is a path only for who takes the name for a host.
            if _hides(word[end:stop], ""):
                return _remove(word)
            return word[found.start() : stop] + ("" if _ends(word, stop) else " "), stop
        return _remove(word) if is_link else (_break(name), end)

    def _allows_web(self, url: str, path: str) -> bool:
        destination = Destination.parse(url)
        return (
            destination is not None
            and not _NESTED.search(path)
            and self._allows_host(destination.origin.host)
        )

    def _allows_host(self, host: str) -> bool:
        destination = Destination.parse(f"https://{host}")
        if destination is None:
            return False
        name, *parents = destination.origin.hosts
        return name in self._hosts or not self._parents.isdisjoint(parents)


class Words:
    """Holds a word until it ends, and releases it without foreign links."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._word = ""
        self._is_url = False

    def feed(self, text: str) -> str:
        out = []
        for part in _DELIMITERS.split(text):
            if _DELIMITERS.match(part):
                out.append(self._end(part) + part)
                self._is_url = part == LINK_URL
            elif part:
                self._grow(part, out)
        return "".join(out)

    def finish(self) -> str:
        return self._end("")

    def _grow(self, part: str, out: list[str]) -> None:
        self._word += part
        # A space where a word is cut: no address may go across.
        while len(self._word) > LONGEST_HELD:
            head, self._word = self._word[:LONGEST_HELD], self._word[LONGEST_HELD:]
            out.append(f"{self._links.clean(head)} ")

    def _end(self, delimiter: str) -> str:
        word, self._word = self._word, ""
        if self._is_url or not word:
            return word
        clean = self._links.clean(word)
        # An address goes on until white space, for some programs over brackets, too.
        is_address = "//" in clean or "www." in clean.lower()
        return f"{clean} " if is_address and delimiter > " " else clean


def find_addresses(text: str) -> Iterator[str]:
    """Yield the http and https addresses in a text, without those that a bracket may have cut."""
    for url, rest in _find_web(text):
        if (not rest or rest[0] in _AFTER_ADDRESS) and Destination.parse(url) is not None:
            yield url


def _find_web(text: str) -> Iterator[tuple[str, str]]:
    """Yield what begins like an address whose host is beyond doubt, and the rest of its word."""
    for word in text.split():
        for found in _WEB.finditer(word):
            end = found.end()
            if found["path"] or _ends(word, end) or not _continues_host(word[end]):
                yield found[0].rstrip(_TRAILING), word[end:]


def _is_suspect(word: str) -> bool:
    if word.isalnum():
        return False
    return not word.isascii() or any(mark in word for mark in ":/\\&") or "." in word[:-1]


def _normalise(word: str) -> str:
    """Write the word as a browser reads it in an address."""
    plain = unicodedata.normalize("NFC", word.translate(_SPACES))
    read = unicodedata.normalize("NFKC", plain.translate(_DOTS))
    return word if read == plain else read


def _hides(plain: str, word: str) -> bool:
    """Whether the word becomes a link only when it is read in another way."""
    if plain == word:
        return False
    return any(found.re is not _NAME or _is_address(plain, found) for found in _find_starts(plain))


def _is_address(word: str, found: re.Match[str]) -> bool:
    name = found[0].lower()
    return (
        "www." in name
        or _is_known(name.rpartition(".")[2])
        or (word[found.end() : found.end() + 1] == "/" and bool(_ENDING.search(name)))
    )


def _continues_host(character: str) -> bool:
    return character.isalnum() or character in "@:.\\%-_"


def _find_starts(word: str) -> Iterator[re.Match[str]]:
    """Yield where links may begin, in order. A name ends where a scheme begins."""
    position = 0
    for found in _START.finditer(word):
        yield from _NAME.finditer(word, position, found.start())
        yield found
        position = found.end()
    yield from _NAME.finditer(word, position)


def _is_known(label: str) -> bool:
    return label.lower() in _ENDINGS or label[:4].lower() == "xn--"


def _is_mail(word: str, found: re.Match[str]) -> bool:
    """Whether a name is one side of the @ of an e-mail address."""
    start, end = found.span()
    if "www." in found[0].lower():
        return False
    if start > 1 and word[start - 1] == "@" and word[start - 2] not in "/:@":
        return _ends(word, end) or word[end] in ",;(<|"
    host = _NAME.match(word, end + 1) if word[end : end + 1] == "@" else None
    return host is not None and _is_mail(word, host)


def _ends(word: str, position: int) -> bool:
    """Whether only closing punctuation follows."""
    return not word[position:].strip(_CLOSERS)


def _remove(word: str) -> tuple[str, int]:
    """Remove the rest of the word but its closing punctuation."""
    end = len(word.rstrip(_CLOSERS))
    return REMOVED, end


def _break(name: str) -> str:
    """Write a space into a bare host name, so that no program makes a link of it."""
    first, *labels = name.split(".")
    return first + "".join(f". {label}" if _is_known(label) else f".{label}" for label in labels)
