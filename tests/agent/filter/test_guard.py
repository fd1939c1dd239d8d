"""The guard: no foreign link, image or secret of a hostile model reaches the visitor."""

import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hlas.agent.filter.canary import fold
from hlas.agent.filter.guard import CanaryTripped, Guard
from hlas.agent.filter.links import LONGEST_HELD, REMOVED
from hlas.agent.prompts import Passage
from hostile_answers import (
    ALLOWED,
    CANARY,
    CONTACTS,
    HOSTILE,
    HOSTS,
    IMAGES,
    LINKS,
    ORDINARY,
    PASSAGES,
    SECRETS,
)
from link_finder import find_host, find_links, has_image_or_tag

# Pieces that mean something together: a random sequence of them is a hostile Markdown text.
PIECES = [
    *"[]()!<>:/\\.@&;#*_`|\"' \n-1a=?%",
    *[
        "](",
        "![",
        "][",
        "]:",
        "\n\n",
        "[9]",
        "[1]",
        "<b>",
        "</b>",
        "&#58;",
        "&amp;",
        "&lt;",
        "#58;",
        "&#4",
        "6;",
        "&",
    ],
    *["http", "https:", "https://", "//", "www.", "evil", ".com", "evil.com", "evil.example"],
    *["good.example", "https://good.example", "https://good.example/", "https://evil.example/"],
    *[
        "[a]",
        "(https://evil.example)",
        "(https://good.example)",
        "[r]: ",
        "\u200b",
        "。",
        "｡",
        "\u00a0",
    ],
    *[
        "javascript:",
        "mailto:",
        "x@evil.com",
        "【1】",
        "【",
        "】",
        "```",
        "    ",
        "> ",
        "- ",
        "1. ",
    ],
    *[
        "\uff57",
        "\uff1a",
        "\u00ad",
        "\ufdd0",
        "\ufdd1",
        "\ufdd2",
        "\ufdd3",
        "\r",
        "\\.",
        "\\/",
        "é",
        "😀",
    ],
]
hostile = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.lists(st.sampled_from([*PIECES, *HOSTILE]), max_size=6).map("".join),
)


def make_guard() -> Guard:
    return Guard(HOSTS, CANARY, PASSAGES)


def run(pieces: Iterator[str] | list[str]) -> tuple[str, list[int]]:
    guard = make_guard()
    text = "".join([guard.feed(piece) for piece in pieces]) + guard.finish()
    return text, [passage.number for passage in guard.cited]


def guard_text(text: str) -> str:
    return run([text])[0]


def is_allowed(url: str) -> bool:
    host = find_host(url)
    if host is None or url.lower() in CONTACTS:
        return True
    if url.lower().startswith(("http:", "https:", "//", "www.")):
        return host in ALLOWED or any(host.endswith(end) for end in ALLOWED if end[0] == ".")
    return False


def assert_safe(text: str) -> None:
    links = [url for url in find_links(text) if not is_allowed(url)]
    assert not links, f"{links} in {text!r}"
    assert not has_image_or_tag(text), repr(text)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_answer_has_no_foreign_link_image_or_tag(text: str) -> None:
    """Edge case 66: every text of the evil model is harmless, alone and within other text."""
    for whole in (text, f"Hello {text} there", f"a{text}b", f"{text}\n\n{text}", f"- *{text}*"):
        assert_safe(guard_text(whole))


@pytest.mark.parametrize("text", [*HOSTILE, *ORDINARY])
def test_any_chunking_gives_the_same_output(text: str) -> None:
    """Edge case 66: character by character, in random pieces and at once are equal."""
    whole = run([text])
    assert run(list(text)) == whole
    for seed in range(5):
        generator = random.Random(seed)
        places = [generator.randrange(len(text) + 1) for _ in range(len(text) // 3)]
        assert run(cut(text, places)) == whole


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_answer_is_unchanged(text: str) -> None:
    """The guard changes nothing in what is harmless."""
    assert guard_text(text) == text


def show_until_tripped(pieces: list[str]) -> str | None:
    """Return what was shown before the secret tripped; None: it did not."""
    guard = make_guard()
    shown = ""
    try:
        for piece in pieces:
            shown += guard.feed(piece)
        guard.finish()
    except CanaryTripped:
        return shown
    return None


@pytest.mark.parametrize("text", SECRETS)
def test_the_secret_trips_before_it_is_shown(text: str) -> None:
    """Edge case 66: of the secret at most 3 letters are released, by any spelling."""
    plain = fold(CANARY)
    parts = {spelling[i:][:4] for spelling in (plain, plain[::-1]) for i in range(29)}
    for pieces in ([text], list(text), [f"Well: {text}"], [*f"x {text}", " more"]):
        shown = show_until_tripped(pieces)
        assert shown is not None, text
        letters = "".join(c for c in fold(shown) if c in "0123456789abcdef")
        assert not any(part in letters for part in parts), letters


def test_a_tripped_guard_stays_closed() -> None:
    """After the secret nothing more is shown."""
    guard = make_guard()
    with pytest.raises(CanaryTripped):
        guard.feed(f"{CANARY} more ")
    with pytest.raises(CanaryTripped):
        guard.feed("hello ")
    with pytest.raises(CanaryTripped):
        guard.finish()


def test_a_shorter_part_of_the_secret_is_no_secret() -> None:
    """A few characters that are equal by chance pass."""
    assert guard_text("Order 3f2b8c, please.") == "Order 3f2b8c, please."
    assert Guard([], "", []).feed("anything at all\n") == "anything at all\n"


@settings(max_examples=300, deadline=None)
@given(hostile, st.lists(st.integers(0, 400), max_size=12))
@example("[a](b [c](d", [3])
@example("![9][a](https://good.example)", [2])
def test_chunking_of_hostile_markdown_does_not_matter(text: str, places: list[int]) -> None:
    """Edge case 66, over texts from a grammar of hostile pieces."""
    assert run(cut(text, places)) == run([text]) == run(list(text))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80), st.lists(st.integers(0, 80), max_size=8))
def test_chunking_of_any_text_does_not_matter(text: str, places: list[int]) -> None:
    """Edge case 66, over all of Unicode."""
    assert run(cut(text, places)) == run([text]) == run(list(text))


@settings(max_examples=500, deadline=None)
@given(hostile)
def test_no_hostile_markdown_is_a_foreign_link(text: str) -> None:
    """Edge case 66, by an extractor that shares no code with the guard."""
    assert_safe(guard_text(text))


@settings(max_examples=300, deadline=None)
@given(hostile)
def test_a_guarded_answer_is_stable(text: str) -> None:
    """A guarded answer that is guarded again, as when it is stored and shown, stays harmless."""
    assert_safe(guard_text(guard_text(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[text](https://evil.example 'title') end", "text end"),
        ("[text](https://good.example 'title') end", "[text](https://good.example/) end"),
        ("[text](https://eu.shop.example/a)", "[text](https://eu.shop.example/a)"),
        ("[text](https://shop.example/a)", "text"),
        ("![alt](https://good.example/x.png) end", "alt end"),
        ("[![alt](https://evil.example)](https://good.example/x)", "[alt](https://good.example/x)"),
        ("[text][ref] end\n\n[ref]: https://evil.example 'x'\nmore", "text end\n\n\nmore"),
        ("[text][] end", "text end"),
        ("<https://good.example/a> end", "https://good.example/a end"),
        ("<a href='https://evil.example'>click</a>", "click"),
        ("<script>alert(1)</script>", "alert(1)"),
        ("(see https://evil.example/x).", f"(see {REMOVED})."),
        ("**https://evil.example**", f"**{REMOVED}**"),
        ("www.evil.com, evil.example/x, //evil.com", f"{REMOVED}, {REMOVED}, {REMOVED}"),
        ("evil.com", "evil. com"),
        ("https://good.example:x@evil.example", REMOVED),
        ("https://good.example:80evil.com", REMOVED),
        ("https://good.example@evil.example.", f"{REMOVED}."),
        ("\uff48\uff54\uff54\uff50\uff53\uff1a\uff0f\uff0fevil.com", REMOVED),
        ("evil\u3002com and evil\uff0ecom/x", f"{REMOVED} and {REMOVED}"),
        ("at\u00a0https://good.example/x\u2026", "at\u00a0https://good.example/x\u2026"),
        ("`https://evil.example`", f"`{REMOVED}`"),
        ("a\u202eb\u200bc\x00d\x1b[0m\u2066e", "abcd[0me"),
        ("[Note]: five", "Note: five"),
        ("a <b and c", "a < b and c"),
        ("AT&amp;T &#269;", "AT&T č"),
        ("mailto:info@good.example", "mailto:info@good.example"),
        ("mailto:other@good.example", REMOVED),
    ],
)
def test_what_is_left_of_a_construct(text: str, expected: str) -> None:
    """A foreign link leaves its text, an image its alternative text, an address a mark."""
    assert guard_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected", "cited"),
    [
        ("It is so [1].", "It is so [1].", [1]),
        ("It is so [9].", "It is so.", []),
        ("It is so [1, 2].", "It is so [1][2].", [1, 2]),
        ("It is so [2; 9; 1].", "It is so [2][1].", [2, 1]),
        ("It is so [1][2][9].", "It is so [1][2].", [1, 2]),
        ("It is so 【1】 and 【2†source】.", "It is so [1] and [2].", [1, 2]),
        ("It is so 【9】.", "It is so.", []),
        ("It is so [2][1][2].", "It is so [2][1][2].", [2, 1]),
        ("It is so [^1].", "It is so [1].", [1]),
        ("It is so [1](https://evil.example).", "It is so [1].", [1]),
        ("It is so [9](https://good.example).", "It is so.", []),
        ("It is so![1]", "It is so! [1]", [1]),
        ("It is so [ 1 ] [0] [00001] [999999999]", "It is so [1] [1]", [1]),
        ("[1", "[1", []),
    ],
)
def test_only_supplied_passages_are_cited(text: str, expected: str, cited: list[int]) -> None:
    """A number that was not supplied is dropped; the others are recorded in order."""
    assert run(list(text)) == (expected, cited)


def test_passages_that_a_tool_finds_are_allowed_from_then_on() -> None:
    """`add` makes a number citable, and its host one to link to."""
    found = Passage(3, "03", "Found", "", "https://found.example/x")
    guard = make_guard()
    text = guard.feed("a [3] https://found.example/y\n")
    guard.add([found])
    text += guard.feed("b [3] https://found.example/y ") + guard.finish()
    assert text == f"a {REMOVED}\nb [3] https://found.example/y "
    assert guard.cited == [found]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Order at https://order.example/form.", "https://order.example/form"),
        ("Order at https://order.example/form.", "https://order.example/other"),
        ("See [the form](https://order.example/form).", "[form](https://order.example/form)"),
        ("**HTTPS://Order.example**: always open", "https://order.example/"),
        ("http://order.example:8080/a_(b)", "http://order.example:8080/a"),
        ("<https://order.example>", "https://order.example"),
    ],
)
def test_hosts_in_a_passage_are_allowed(written: str, said: str) -> None:
    """An address that the tenant wrote into its knowledge may stand in an answer."""
    passage = Passage(1, "01", "Orders", written, "")
    for pieces in ([f"Here: {said} [1]"], list(f"Here: {said} [1]")):
        guard = Guard([], CANARY, [passage])
        text = "".join(map(guard.feed, pieces)) + guard.finish()
        assert text == f"Here: {said} [1]"


@pytest.mark.parametrize(
    "written",
    [
        "order.example",
        "ftp://order.example/",
        "https://order.example@evil.example/",
        "https://order.example:secret@evil.example/",
        "https://order.example.evil.example/",
        "https://evil.example/?next=https://order.example/",
        "https:order.example",
        "",
    ],
)
def test_only_hosts_of_addresses_in_a_passage_are_allowed(written: str) -> None:
    """What is not plainly the host of an http or https address is not taken for one."""
    guard = Guard([], CANARY, [Passage(1, "01", "Orders", written, "")])
    text = guard.feed("Here: https://order.example/ [1]") + guard.finish()
    assert text == f"Here: {REMOVED} [1]"


def test_words_flow_at_once() -> None:
    """A word is shown as soon as it ends; the space after it may wait for the next one."""
    guard = make_guard()
    shown = [guard.feed(piece) for piece in ("Hello", " there", ", how", " are", " you?", "\n")]
    assert shown == ["", "Hello ", "there, ", "how ", "are ", "you?\n"]


@pytest.mark.parametrize("opener", ["[", "![", "[a](", "<a ", "x", "[a](b 'c", "[[[[", "&", "【"])
def test_what_is_held_back_is_bounded(opener: str) -> None:
    """However long an open construct gets, little is pending: some constructs within others."""
    guard = make_guard()
    shown, fed = guard.feed(f"start\n{opener}"), 0
    for _ in range(100):
        shown += guard.feed("word" * 50 if opener == "x" else "word " * 40)
        fed += 200
        assert fed - len(shown) <= 2 * LONGEST_HELD


@pytest.mark.parametrize(
    "piece",
    [
        *["[", "]", "(", ")", "!", "<", ">", "&", "[a](", "![a](", "[a][", "[a]: ", "<a ", "&amp;"],
        *[
            "https://",
            "//",
            "/",
            ".",
            "a.",
            "www.",
            "\\",
            "a@",
            "x@a.",
            "-",
            ":",
            "data:",
            "é.",
            "【",
        ],
        *[
            "[1]",
            "[[a](b)",
            "[a](https://good.example)",
            "https://good.example,",
            "3f2b8c",
            " ",
            "\n",
        ],
        *["[a](b c", "a", "。", "&#", "*a.com", "good.example/", "good.example(", "!["],
    ],
)
def test_work_grows_with_the_length_only(piece: str) -> None:
    """Twice the text is at most about twice the work: counted in calls, not by a clock."""
    small, large = (count_calls(piece * (size // len(piece))) for size in (6000, 12_000))
    assert large <= 2.2 * small + 1000
    assert large <= 12_000 * 60


def count_calls(text: str) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    guard = make_guard()
    sys.setprofile(count)
    try:
        for start in range(0, len(text), 1000):
            guard.feed(text[start : start + 1000])
        guard.finish()
    except CanaryTripped:
        pass
    finally:
        sys.setprofile(None)
    return calls


def test_the_finder_is_not_blind() -> None:
    """Without the guard, most of what the evil model says is a foreign link, an image or a tag."""
    harmful = 0
    for text in HOSTILE:
        is_foreign = not all(is_allowed(url) for url in find_links(text))
        harmful += is_foreign or has_image_or_tag(text)
    assert harmful >= 0.75 * len(HOSTILE)


def test_the_corpus_is_large() -> None:
    """The evil model has enough to say, and none of it twice."""
    assert len(set(LINKS)) == len(LINKS)
    assert len({*LINKS, *IMAGES, *SECRETS}) >= 150
    assert len(set(ORDINARY)) >= 40
