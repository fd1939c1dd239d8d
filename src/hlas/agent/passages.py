"""Passages of the tenant's own knowledge, for the prompt and for the tool that searches it."""

from hlas.agent.filter.links import find_addresses
from hlas.agent.prompts import LONGEST_URL, Passage
from hlas.knowledge.ranking import Match, confidence

# A model reads what a visitor would be offered; less likely entries would only mislead it.
CONFIDENCE = confidence.load().thresholds.offered
# Each passage is paid for with every request, and the fifth rarely answers.
MOST_FOR_A_TEXT = 5


def is_relevant(match: Match) -> bool:
    return match.confidence >= CONFIDENCE


def make_passage(number: int, match: Match) -> Passage:
    return Passage(number, match.entry_id, match.question, match.answer, find_page(match))


def find_page(match: Match) -> str:
    """Where its citations lead: the page it was taken from, or an address in its answer."""
    return match.url or find_url(match.answer)


def find_url(answer: str) -> str:
    """The first address in an entry's answer; empty without one."""
    fitting = (url for url in find_addresses(answer) if len(url) <= LONGEST_URL)
    return next(fitting, "")
