"""The table of keys: whole whatever comes and goes, small, and the same for few keys and many."""

import gc
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import Clock
from hlas.limits import Limit, MemoryLimiter, Rule
from hlas.limits import table as table_module
from hlas.limits.table import BITS, BUSY, WORDS, Table


def rows(table: Table) -> dict[int, list[int]]:
    """Every row that is in the pages, wherever it lies."""
    found = {}
    for page in table._pages:
        for place in range(0, table_module._END, WORDS):
            if page[place]:
                found[page[place]] = list(page[place + 1 : place + WORDS])
    return found


def random_keys(random: Random, number: int, common: int) -> list[int]:
    """Keys that have these bits in common, and are as different as they can be for the rest."""
    alike = random.getrandbits(64) & common
    keys = {(random.getrandbits(64) & ~common | alike) - 2**63 for _ in range(number)}
    return list(keys - {0})


# None; those that choose the page, so that pages are split again and again; those that choose the
# place, so that searches are long; some of both.
@pytest.mark.parametrize("common", [0, 0xFFF, 0x3E00_0000, 0x3C00_000F])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), number=st.integers(0, 4000))
def test_the_table_holds_what_a_dict_would(common: int, seed: int, number: int) -> None:
    """Keys that come and go in any order, through many splits, are there exactly when they are."""
    random = Random(seed)
    table = Table(max_keys=10**6)
    model: dict[int, list[int]] = {}
    keys = random_keys(random, number, common)
    for key in keys:
        closes, at = random.getrandbits(60), random.getrandbits(60)
        assert table.insert(key, closes, at)
        model[key] = [1, closes, at]
        if random.random() < 0.4:
            gone = random.choice(keys)
            page, place = table.find(gone)
            assert (place >= 0) == (gone in model)
            if place >= 0:
                table.remove(page, place)
                del model[gone]
    assert rows(table) == model
    assert table.keys == len(model)
    for key in keys:
        page, place = table.find(key)
        found = list(page[place + 1 : place + WORDS]) if place >= 0 else None
        assert found == model.get(key)


def test_keys_that_no_bit_tells_apart_do_not_split_for_ever() -> None:
    """When the bits run out a newcomer is told that there is no place; the others stay."""
    table = Table(max_keys=10**6)
    keys = random_keys(Random(1), 3000, BITS)
    inserted = [key for key in keys if table.insert(key, 0, 0)]
    assert 0 < len(inserted) < len(keys)
    assert set(rows(table)) == set(inserted)


def test_newcomers_without_a_place_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer for whom the table has no place is limited, more strictly if anything."""
    monkeypatch.setattr(Table, "insert", lambda *_: False)
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("ip", "session", Limit(3, 60))
    for _ in range(3):
        assert limiter.consume_now([(rule, "a")]) is None
    assert limiter.consume_now([(rule, "a")]) is not None


def test_a_limit_is_exact_while_pages_are_split() -> None:
    """Rows move to other pages and become states, and no request is forgotten or counted twice."""
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
            assert limiter.consume_now([(rule, f"newcomer {turn} {number}")]) is None
        clock.advance(0.5)
    assert len(limiter._tables[rule.table]._pages) > 8
    for number in range(20):
        for check in ((rule, f"busy {number}"), (few, f"light {number}")):
            refusal = limiter.consume_now([check])
            assert refusal is not None
            # The first two came in one slot, the second of them after half a second.
            assert refusal.retry_after == 46


def visit_in_two_slots(limiter: MemoryLimiter, clock: Clock, rule: Rule, names: int) -> None:
    for _ in range(2):
        for number in range(names):
            assert limiter.consume_now([(rule, f"visitor {number}")]) is None
        clock.advance(2)


def test_a_busy_key_that_expires_leaves_nothing_behind() -> None:
    """What is kept of a key that came in several slots goes with its row."""
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    rule = Rule("ip", "session", Limit(30, 60))
    visit_in_two_slots(limiter, clock, rule, 1000)
    table = limiter._tables[rule.table]
    assert len(table.busy) == 1000
    clock.advance(60)
    for number in range(1000):
        limiter.consume_now([(rule, f"new {number}")])
    assert not table.busy
    assert table.keys == len(rows(table)) == 1000


def test_a_busy_key_that_is_evicted_leaves_nothing_behind() -> None:
    """Edge case 27: in a full table the states are those of its rows, and no others."""
    clock = Clock()
    limiter = MemoryLimiter(max_keys=1000, clock=clock)
    rule = Rule("ip", "session", Limit(30, 60))
    visit_in_two_slots(limiter, clock, rule, 1000)
    table = limiter._tables[rule.table]
    # Newcomers that are busy, too, so that there is none that goes at once.
    for number in range(1000):
        for _ in range(BUSY):
            assert limiter.consume_now([(rule, f"new {number}")]) is None
    marked = {key for key, (used, *_) in rows(table).items() if not used}
    assert set(table.busy) == marked
    assert table.keys == len(rows(table)) == 1000
    assert sum(table.find(hash(f"visitor {number}"))[1] >= 0 for number in range(1000)) < 500


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_tiny_table_is_bounded_too(most: int) -> None:
    """With few places for keys the one that can go is found, and those at their limit stay."""
    limiter = MemoryLimiter(max_keys=most, clock=Clock())
    rule = Rule("ip", "session", Limit(2, 60))
    for number in range(most - 1):
        for _ in range(2):
            assert limiter.consume_now([(rule, f"limited {number}")]) is None
    for number in range(200):
        assert limiter.consume_now([(rule, f"flood {number}")]) is None
    table = limiter._tables[rule.table]
    assert not table.shared
    assert table.keys == len(rows(table)) == most
    for number in range(most - 1):
        assert limiter.consume_now([(rule, f"limited {number}")]) is not None


def fill(limiter: MemoryLimiter, rule: Rule, keys: int) -> None:
    for number in range(keys):
        limiter.consume_now([(rule, f"flood {number}")])


def test_a_key_takes_few_bytes() -> None:
    """Edge case 27: 87 bytes were measured; from split to split it goes from 94 to 47."""
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    fill(limiter, rule, 100_000)
    table = limiter._tables[rule.table]
    size = sum(map(sys.getsizeof, [*table._pages, table._pages, table.directory, table.busy]))
    assert size / 100_000 < 120


def test_keys_seen_once_are_nothing_to_the_garbage_collector() -> None:
    """Edge case 27: a flood of addresses does not make its visits longer."""
    limiter = MemoryLimiter(clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    fill(limiter, rule, 1)
    gc.collect()
    before = len(gc.get_objects())
    fill(limiter, rule, 50_000)
    gc.collect()
    assert len(gc.get_objects()) - before < 500


def test_a_new_key_costs_the_same_however_many_there_are() -> None:
    """Edge case 27: flat cost is proved by counting the lines that are run, not by a clock."""
    limiter = MemoryLimiter(max_keys=20_000, clock=Clock())
    rule = Rule("ip", "session", Limit(30, 60))
    lines = 0

    def count(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return count

    costs = []
    for number in range(40_000):
        before = lines
        sys.settrace(count)
        limiter.consume_now([(rule, f"flood {number}")])
        sys.settrace(None)
        costs.append(lines - before)
    table = limiter._tables[rule.table]
    assert table.keys == 20_000
    # The dearest newcomers split a page, and no more than one however large the directory is.
    assert max(costs) < max(costs[:1000]) * 1.5
    # The others look at a few keys, also in a full table, where one has to go.
    assert sorted(costs[20_000:])[-200] < 1000
