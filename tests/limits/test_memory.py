"""Parsing of limits, refusals, and the bounded memory of a process."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clocks import Clock
from hlas.limits import Limit, MemoryLimiter, Refusal, Rule, Scope, memory
from hlas.limits.memory import SHARED
from hlas.limits.rules import SLOTS


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("30/min", 30, 60),
        ("5/s", 5, 1),
        ("10/hour", 10, 3600),
        ("10/h", 10, 3600),
        ("1/second", 1, 1),
        (" 7 / Minute ", 7, 60),
        ("1000000000/day", 1_000_000_000, 86400),
    ],
)
def test_limit_reads_what_the_contract_lists(text: str, count: int, seconds: int) -> None:
    """Every unit of the contract is accepted, short or spelled out."""
    assert Limit.parse(text) == Limit(count, seconds)


def test_limit_off_is_none() -> None:
    """`off` means no limit."""
    assert Limit.parse("off") is None
    assert Limit.parse(" OFF ") is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "30", "0/min", "-1/min", "1.5/min", "30/fortnight", "30/min/2", "x/min", "٣/min"),
        *("1000000001/s", "99999999999/s", "30/", "/min", "30/m", "none", "30 per min"),
    ],
)
def test_limit_refuses_the_rest_in_one_sentence(text: str) -> None:
    """Edge case 31: an invalid limit is refused with one line that quotes it."""
    with pytest.raises(ValueError, match="is not a limit") as caught:
        Limit.parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 10**9), st.sampled_from([1, 60, 3600, 86400]))
def test_limit_is_written_as_it_is_read(count: int, seconds: int) -> None:
    """A limit shown to an operator can be pasted into the environment."""
    limit = Limit(count, seconds)
    assert Limit.parse(str(limit)) == limit


@pytest.mark.parametrize("scope", ["ip", "conversation"])
def test_refusal_renders_the_draft_headers(scope: Scope) -> None:
    """The limit that was hit is in the headers of the IETF draft."""
    refusal = Refusal(Rule(scope, "messages", Limit(30, 60)), "key", 12)
    assert refusal.headers() == {
        "Retry-After": "12",
        "RateLimit-Policy": f'"{scope}";q=30;w=60',
        "RateLimit": f'"{scope}";r=0;t=12',
    }


def test_refusal_by_a_tenant_limit_discloses_nothing() -> None:
    """A visitor learns when to retry, but not the tenant's limit or usage."""
    refusal = Refusal(Rule("tenant", "messages", Limit(3000, 60)), "key", 12)
    assert refusal.headers() == {"Retry-After": "12"}


def test_refusal_does_not_print_its_key() -> None:
    """The representation has no address or id, so that none gets into a log."""
    assert "203.0.113.9" not in repr(Refusal(Rule("ip", "x", Limit(1, 1)), "203.0.113.9", 1))


def test_the_longest_wait_is_reported() -> None:
    """Edge case 21: waiting for Retry-After satisfies every limit that is hit, not only one."""
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    short = Rule("ip", "messages", Limit(1, 60))
    long = Rule("tenant", "messages", Limit(1, 3600))
    assert limiter.consume_now([(short, "a"), (long, "t")]) is None
    for checks in ([(short, "a"), (long, "t")], [(long, "t"), (short, "a")]):
        refusal = limiter.consume_now(checks)
        assert refusal is not None
        assert (refusal.rule, refusal.retry_after) == (long, 3600)


def test_a_changed_limit_keeps_what_was_used() -> None:
    """A tenant's limit can be changed at any time, and its usage is kept."""
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("tenant", "messages", Limit(2, 60))
    assert limiter.consume_now([(rule, "t")]) is None
    assert limiter.consume_now([(rule, "t")]) is None
    raised = replace(rule, limit=Limit(3, 60))
    assert limiter.consume_now([(raised, "t")]) is None
    assert limiter.consume_now([(raised, "t")]) is not None
    lowered = replace(rule, limit=Limit(1, 60))
    assert limiter.consume_now([(lowered, "t")]) is not None


@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_flood_of_keys_evicts_no_key_that_is_limited(count: int) -> None:
    """Edge case 27: the number of keys is bounded, and a limited key stays limited."""
    limiter = MemoryLimiter(max_keys=500, clock=Clock())
    rule = Rule("ip", "session", Limit(count, 60))
    for _ in range(count):
        assert limiter.consume_now([(rule, "limited")]) is None
    for number in range(5000):
        limiter.consume_now([(rule, f"flood {number}")])
    table = limiter._tables[rule.table]
    assert len(table.windows) == len(table._keys) == 500
    assert sum(f"flood {number}" in table.windows for number in range(5000)) == 499
    assert len(table.shared) <= SHARED
    assert limiter.consume_now([(rule, "limited")]) is not None


def test_a_flood_of_keys_evicts_the_least_used() -> None:
    """Edge case 27: keys that were used once are evicted before keys that were used more."""
    limiter = MemoryLimiter(max_keys=400, clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    for number in range(200):
        for _ in range(20):
            assert limiter.consume_now([(rule, f"regular {number}")]) is None
    for number in range(5000):
        assert limiter.consume_now([(rule, f"flood {number}")]) is None
    for number in range(200):
        for _ in range(10):
            assert limiter.consume_now([(rule, f"regular {number}")]) is None
        assert limiter.consume_now([(rule, f"regular {number}")]) is not None


def test_new_keys_share_windows_when_every_key_is_limited() -> None:
    """Edge case 27: with a full table a new key is still limited, and entries are freed later."""
    clock = Clock()
    limiter = MemoryLimiter(max_keys=50, clock=clock)
    rule = Rule("ip", "session", Limit(2, 60))
    for number in range(50):
        for _ in range(2):
            assert limiter.consume_now([(rule, f"full {number}")]) is None
    assert limiter.consume_now([(rule, "newcomer")]) is None
    assert limiter.consume_now([(rule, "newcomer")]) is None
    refusal = limiter.consume_now([(rule, "newcomer")])
    assert refusal is not None
    assert refusal.retry_after == 60
    clock.advance(60)
    assert limiter.consume_now([(rule, "newcomer")]) is None
    assert "newcomer" in limiter._tables[rule.table].windows


def test_rules_have_separate_tables() -> None:
    """A flood of one kind of key does not evict keys of other rules."""
    limiter = MemoryLimiter(max_keys=100, clock=Clock())
    address = Rule("ip", "messages", Limit(30, 60))
    tenant = Rule("tenant", "messages", Limit(2, 60))
    assert limiter.consume_now([(tenant, "t")]) is None
    for number in range(1000):
        limiter.consume_now([(address, f"flood {number}")])
    assert limiter.consume_now([(tenant, "t")]) is None
    assert limiter.consume_now([(tenant, "t")]) is not None


def test_expired_keys_go_as_new_ones_come() -> None:
    """Edge case 27: the table shrinks to the keys in use, without a sweep."""
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    rule = Rule("ip", "session", Limit(30, 60))
    for number in range(2000):
        limiter.consume_now([(rule, f"old {number}")])
    clock.advance(60)
    for number in range(1500):
        limiter.consume_now([(rule, f"new {number}")])
    table = limiter._tables[rule.table]
    assert len(table.windows) < 2000
    for number in range(1500, 2100):
        limiter.consume_now([(rule, f"new {number}")])
    assert not any(f"old {number}" in table.windows for number in range(2000))
    assert len(table.windows) == 2100


def test_the_memory_of_a_busy_key_is_bounded() -> None:
    """Edge case 27: a key in constant use stores at most one pair per slot."""
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    rule = Rule("tenant", "messages", Limit(1_000_000, 60))
    longest = 0
    for _ in range(20_000):
        clock.advance(0.037)
        assert limiter.consume_now([(rule, "t")]) is None
        longest = max(longest, len(limiter._tables[rule.table].windows["t"].slots))
    assert SLOTS < longest <= 2 * (SLOTS + 2)


def test_peek_consumes_nothing_and_makes_no_key() -> None:
    """Peeking, used for the address's limit first, consumes nothing and creates no key."""
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("ip", "session", Limit(1, 60))
    for _ in range(3):
        assert limiter.peek_now([(rule, "a")]) is None
    assert not limiter._tables
    assert limiter.consume_now([(rule, "a")]) is None
    assert limiter.peek_now([(rule, "a")]) is not None


def test_a_request_may_name_a_key_twice() -> None:
    """A key that a request names twice is counted twice."""
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    for _ in range(15):
        assert limiter.consume_now([(rule, "a"), (rule, "a")]) is None
    assert list(limiter._tables[rule.table].windows) == ["a"]
    assert limiter.consume_now([(rule, "a")]) is not None
    assert limiter.consume_now([(rule, "b")]) is None


def test_a_window_of_its_own_keeps_the_usage() -> None:
    """A key that moves from a shared window to its own keeps its usage."""
    clock = Clock()
    limiter, rule = MemoryLimiter(max_keys=50, clock=clock), Rule("ip", "m", Limit(10, 60))
    for number in range(50):
        for _ in range(10):
            assert limiter.consume_now([(rule, f"full {number}")]) is None
    clock.advance(59)
    admitted = sum(limiter.consume_now([(rule, "newcomer")]) is None for _ in range(9))
    clock.advance(1)
    # The others have expired, so there is room again.
    admitted += sum(limiter.consume_now([(rule, "newcomer")]) is None for _ in range(20))
    assert admitted == 10


def test_shared_windows_expire() -> None:
    """After an overload new keys are handled as before."""
    clock = Clock()
    limiter, rule = MemoryLimiter(max_keys=5, clock=clock), Rule("ip", "m", Limit(1, 60))
    for number in range(20):
        limiter.consume_now([(rule, str(number))])
    table = limiter._tables[rule.table]
    assert table.shared
    clock.advance(100)
    for number in range(20):
        limiter.consume_now([(rule, f"later {number}")])
        clock.advance(100)
    assert not table.shared


@pytest.mark.parametrize("used", [5, 20])
def test_over_a_lowered_limit(used: int) -> None:
    """A refused key is kept even if its limit was higher when it was used up."""
    limiter = MemoryLimiter(max_keys=100, clock=Clock())
    high, low, others = (
        Rule("ip", "m", Limit(30, 60)),
        Rule("ip", "m", Limit(3, 60)),
        Rule("ip", "m", Limit(2, 60)),
    )
    for _ in range(used):
        assert limiter.consume_now([(high, "lowered")]) is None
    assert limiter.consume_now([(low, "lowered")]) is not None
    for number in range(300):
        for _ in range(2):
            limiter.consume_now([(others, f"other {number}")])
    assert limiter.consume_now([(low, "lowered")]) is not None


def test_a_limit_is_exact_while_other_keys_come() -> None:
    """Thousands of new keys make a busy key neither lose a request nor count one twice."""
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    rule = Rule("ip", "session", Limit(30, 60))
    few = Rule("ip", "session", Limit(5, 60))
    for turn in range(30):
        for number in range(20):
            assert limiter.consume_now([(rule, f"busy {number}")]) is None
            if turn < 5:
                assert limiter.consume_now([(few, f"light {number}")]) is None
        for number in range(300):
            assert limiter.consume_now([(rule, f"new {turn} {number}")]) is None
        clock.advance(0.5)
    for number in range(20):
        for check in ((rule, f"busy {number}"), (few, f"light {number}")):
            refusal = limiter.consume_now([check])
            assert refusal is not None
            # The first two came in one slot, the second of them after half a second.
            assert refusal.retry_after == 46


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_tiny_table_is_bounded_too(most: int) -> None:
    """Edge case 27: in a tiny table the evictable key is found, and keys at their limit stay."""
    limiter = MemoryLimiter(max_keys=most, clock=Clock())
    rule = Rule("ip", "session", Limit(2, 60))
    for number in range(most - 1):
        for _ in range(2):
            assert limiter.consume_now([(rule, f"limited {number}")]) is None
    for number in range(200):
        limiter.consume_now([(rule, f"flood {number}")])
    assert len(limiter._tables[rule.table].windows) == most
    for number in range(most - 1):
        assert limiter.consume_now([(rule, f"limited {number}")]) is not None


def test_a_new_key_costs_the_same_however_many_there_are() -> None:
    """Edge case 27: a new key runs the same number of lines for any number of keys."""
    limiter = MemoryLimiter(max_keys=20_000, clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    lines = 0

    def count(frame: FrameType, *_: object) -> Any:
        nonlocal lines
        # Callbacks of the garbage collector may come in between.
        if frame.f_code.co_filename != memory.__file__:
            return None
        lines += 1
        return count

    costs = []
    for number in range(40_000):
        before = lines
        sys.settrace(count)
        limiter.consume_now([(rule, f"flood {number}")])
        sys.settrace(None)
        costs.append(lines - before)
    assert len(limiter._tables[rule.table].windows) == 20_000
    assert max(costs[1000:20_000]) < max(costs[:1000]) * 1.5
    # In a full table one of a few sampled keys is evicted.
    assert max(costs[20_000:]) < 500
