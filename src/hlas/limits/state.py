"""What is kept of a busy key: in which slots its requests came.

Requests that come within one slot are counted together and bear the time of the last of them,
so nothing expires early. The state of a key is

    [key, used, closes, at, count, earlier, at, times, at, times, ...]

and begins as a row of the table does. `used` is all that is used, `closes` the end of the slot
that still takes requests, `at` the last of them, `count` the limit. The pairs are the earlier
slots, oldest first, and `earlier` is the sum of their `times`: a request in the open slot changes
two numbers, however many slots there are.
"""

from hlas.limits.rules import Rule

State = list[int]
KEY, USED, CLOSES, AT, COUNT, EARLIER, PAIRS = range(7)


def new(key: int, used: int, closes: int, at: int) -> State:
    return [key, used, closes, at, 0, 0]


def expire(state: State, horizon: int) -> None:
    """Drop what happened at `horizon` or before."""
    if state[AT] <= horizon:
        state[USED] = state[EARLIER] = 0
        del state[PAIRS:]
        return
    end, gone = PAIRS, 0
    while end < len(state) and state[end] <= horizon:
        gone += state[end + 1]
        end += 2
    state[USED] -= gone
    state[EARLIER] -= gone
    del state[PAIRS:end]


def wait(state: State, rule: Rule, now: int) -> int:
    """Nanoseconds until a key that used its limit has room, if nobody else takes it.

    Not above zero: there is room by now.
    """
    if state[EARLIER]:
        expire(state, now - rule.window)
        surplus = state[USED] - rule.count
        if surplus < 0:
            return 0
        for place in range(PAIRS, len(state), 2):
            surplus -= state[place + 1]
            if surplus < 0:
                return state[place] + rule.window - now
    return state[AT] + rule.window - now


def add(state: State, rule: Rule, now: int) -> None:
    """Count one more request."""
    if now >= state[CLOSES]:
        # Only here does a state grow, so only here must it shrink.
        expire(state, now - rule.window)
        times = state[USED] - state[EARLIER]
        if times:
            state += (state[AT], times)
            state[EARLIER] += times
        state[CLOSES] = now + rule.slot
    state[USED] += 1
    state[AT] = now
    state[COUNT] = rule.count
