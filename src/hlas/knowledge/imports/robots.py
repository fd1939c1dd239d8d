"""What a site's robots.txt allows (RFC 9309)."""

import re
from dataclasses import dataclass

LARGEST_ROBOTS = 500_000
# Our name in robots.txt.
AGENT = "hlas"
# A longer pause between requests is not waited for.
LONGEST_DELAY = 30.0


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: str
    allows: bool


@dataclass(frozen=True, slots=True)
class Robots:
    rules: tuple[Rule, ...] = ()
    delay: float = 0.0
    sitemaps: tuple[str, ...] = ()

    def allow(self, target: str) -> bool:
        """The longest rule that matches a path with its query decides; of two, the allowing one."""
        matching = [rule for rule in self.rules if _matches(rule.pattern, target)]
        best = max(matching, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(data: bytes) -> Robots:
    """Read the group for us, or else that for all; what cannot be understood is skipped."""
    groups: dict[str, list[tuple[str, str]]] = {}
    sitemaps: list[str] = []
    names: list[str] = []
    is_open = False
    for line in (
        data[:LARGEST_ROBOTS].decode("utf-8", errors="replace").lstrip("\ufeff").splitlines()
    ):
        field, colon, value = line.partition("#")[0].partition(":")
        field, value = field.strip().lower(), value.strip()
        if not colon:
            continue
        if field == "sitemap":
            sitemaps.append(value)
        elif field == "user-agent":
            # Several names in a row share the rules below them.
            names = [*names, value.lower()] if is_open else [value.lower()]
            is_open = True
        elif field in {"allow", "disallow", "crawl-delay"}:
            is_open = False
            for name in names:
                groups.setdefault(name, []).append((field, value))
    chosen = groups.get(AGENT, groups.get("*", []))
    rules = (Rule(value, field == "allow") for field, value in chosen if field != "crawl-delay")
    delays = [value for field, value in chosen if field == "crawl-delay"]
    return Robots(
        tuple(rule for rule in rules if rule.pattern),
        _read_delay(delays[0]) if delays else 0.0,
        tuple(sitemaps),
    )


def _read_delay(text: str) -> float:
    found = re.fullmatch(r"\d{1,6}(?:\.\d{1,3})?", text)
    return min(float(text), LONGEST_DELAY) if found else 0.0


def _matches(pattern: str, target: str) -> bool:
    """`*` stands for any characters, `$` at the end for the end; no backtracking."""
    is_whole = pattern.endswith("$")
    parts = pattern.removesuffix("$").split("*")
    if not target.startswith(parts[0]):
        return False
    place = len(parts[0])
    for part in parts[1:]:
        found = target.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    if not is_whole:
        return True
    # The last part may also occur earlier.
    return place == len(target) or (len(parts) > 1 and target.endswith(parts[-1]))
