"""Which addresses of a site are read, and in which order."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from hlas.knowledge.language import fold
from hlas.outbound.destinations import Destination
from hlas.visitors.origins import DEFAULT_PORTS, Origin

# Variants of one page by its query, and pages by dates and numbers, as calendars have.
MOST_VARIANTS = 10
MOST_OF_A_SHAPE = 50
MOST_SEGMENTS = 12
MOST_REPEATS = 2

_TRACKING = re.compile(
    r"utm_\w+|fbclid|gclid|gad_source|msclkid|mc_[ce]id|_ga|ref|phpsessid|jsessionid|sid|"
    r"session_?id|replytocom|share|print|sort|order|orderby|dir|view|limit|per_?page",
    re.IGNORECASE,
)
_SESSION = re.compile(r";(?:jsessionid|phpsessid|sid)=[^/?]*", re.IGNORECASE)
_FILES = re.compile(
    r"\.(?:jpe?g|png|gif|webp|svg|ico|css|js|mjs|json|xml|rss|atom|pdf|docx?|xlsx?|pptx?|odt|zip|"
    r"rar|7z|gz|tar|mp[34]|m4[av]|avi|mov|webm|ogg|wav|woff2?|ttf|eot|exe|dmg|apk|ics|vcf|csv)$",
    re.IGNORECASE,
)
_USELESS = re.compile(
    r"/(?:wp-(?:admin|login|json|content)|login|logout|prihlaseni|registrace|kosik|cart|checkout|"
    r"feed|admin|search|hledat|vyhledavani)(?:[/.]|$)"
)
# Pages that answer what visitors ask come first.
_USEFUL = re.compile(
    r"faq|otazk|dotaz|help|napoved|podpor|support|kontakt|contact|doprav|doruc|delivery|shipping|"
    r"platb|payment|reklam|vracen|return|refund|podmink|terms|cen[ai]k|pricing|price|oteviraci|"
    r"opening|hours|o-nas|about|sluzb|service|jak-|how-"
)


@dataclass(frozen=True, slots=True)
class Site:
    """An origin; its host with and without `www.` is the same site."""

    origin: Origin

    def find(self, url: str) -> str | None:
        """The address of a page of this site in one spelling; None for other addresses."""
        destination = Destination.parse(url)
        if destination is None or not self.has(destination.origin):
            return None
        path, _, query = _SESSION.sub("", destination.target).partition("?")
        kept = [pair for pair in parse_qsl(query) if not _TRACKING.fullmatch(pair[0])]
        # The default page of a folder has two addresses.
        path = re.sub(r"/(?:index|default)\.(?:html?|php|aspx?)$", "/", path) if not kept else path
        return f"{self.origin}{path or '/'}" + (f"?{urlencode(sorted(kept))}" if kept else "")

    def has(self, origin: Origin) -> bool:
        mine = self.origin
        if origin.host.removeprefix("www.") != mine.host.removeprefix("www."):
            return False
        # A sitemap may still list http after the site has moved to https.
        usual = all(one.port == DEFAULT_PORTS[one.scheme] for one in (origin, mine))
        return usual or (origin.scheme, origin.port) == (mine.scheme, mine.port)


class Frontier:
    """Addresses to read, each once, without the traps that have no end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen: set[str] = set()
        self._shapes: Counter[str] = Counter()
        self.trapped = 0

    def take(self, urls: Iterable[str]) -> list[str]:
        """The new ones among these, the most useful first."""
        taken: dict[str, None] = {}
        for url in urls:
            found = self._site.find(url)
            if found is not None and found not in self._seen:
                self._seen.add(found)
                if self._is_page(found):
                    taken.setdefault(found)
        return sorted(taken, key=_rank)

    def mark(self, url: str) -> bool:
        """Remember an address that a redirect led to; whether it is new."""
        found = self._site.find(url) or url
        is_new = found not in self._seen
        self._seen.add(found)
        return is_new

    def _is_page(self, url: str) -> bool:
        path, _, query = url.partition("?")
        if _FILES.search(path) or _USELESS.search(fold(path)):
            return False
        segments = path.split("/")[3:]
        repeats = max(Counter(one for one in segments if one).values(), default=0)
        if len(segments) > MOST_SEGMENTS or repeats > MOST_REPEATS:
            self.trapped += 1
            return False
        names = "&".join(name for name, _ in parse_qsl(query))
        inner = "/".join(segments)
        numbers = re.findall(r"\d+", inner)
        shape = re.sub(r"\d+", "0", inner) + f"?{names}"
        most = MOST_VARIANTS if query else MOST_OF_A_SHAPE
        if query or len(numbers) > 1:
            self._shapes[shape] += 1
            if self._shapes[shape] > most:
                self.trapped += 1
                return False
        return True


def _rank(url: str) -> tuple[bool, int]:
    path = fold(url.partition("://")[2].partition("/")[2])
    return _USEFUL.search(path) is None, path.count("/")
