"""What a scripted model does with a request, and the small language that says so.

The text of the last user message is the script. It has one step for each request of a run; steps
are separated by a new line or ` then `, and the commands of a step follow each other:

    say 20 words in 0.5 s       word0 word1 ...; `stamps`: times of sending (monotonic, ns)
    repeat **this** text        the rest of the message as it is
    call get_product {"a": 1}   a tool call; with `forever`, in every request that offers tools
    usage none                  also twice, every, negative, absurd, or 12/34 (input/output)
    finish length               or another reason; `finish none`: the body ends without one
    fail 500                    a status; `fail 429 after 7` has Retry-After
    fail hang                   nothing more is sent, not even the head if this comes first
    fail cut                    the connection is closed; also garbage, error, endless, empty

    call get_product {"a": 1} then say 3 words in 0 s fail cut

Without a command the answer is `Done.`, as it is after the last step.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from scripted_agent import words

DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"message": "overloaded", "code": 529}}\n\n'
GARBAGE = b"data: {not json\n\n"


@dataclass(frozen=True)
class Say:
    """Text in pieces of a word each, evenly over the seconds."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Stamps:
    """As many words, each of them the monotonic time in ns at which it is sent."""

    count: int
    seconds: float


@dataclass(frozen=True)
class Call:
    """A tool call, whose arguments come in two pieces."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True)
class Send:
    """Bytes of the body as they are."""

    data: bytes


@dataclass(frozen=True)
class Endless:
    """The same bytes until the client leaves."""

    data: bytes


@dataclass(frozen=True)
class Refuse:
    """A response without an answer."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Head:
    """Headers other than those of an event stream; without chunks the body ends by a close."""

    content_type: str = "application/json"
    is_chunked: bool = True


@dataclass(frozen=True)
class Finish:
    """How the stream ends after the last command; without a reason, with nothing."""

    reason: str | None


@dataclass(frozen=True)
class Usage:
    """What is reported: once, none, twice, every, negative, absurd or `12/34`."""

    mode: str


@dataclass(frozen=True)
class Await:
    """Sends nothing until the test sets the event."""

    event: asyncio.Event


class Hang:
    """Sends nothing until the client leaves."""


class Cut:
    """Closes the connection in the middle of the body."""


Step: TypeAlias = (
    Say
    | Stamps
    | Call
    | Send
    | Endless
    | Refuse
    | Head
    | Finish
    | Usage
    | Await
    | type[Hang]
    | type[Cut]
)
Script: TypeAlias = Callable[[dict[str, Any]], Iterable[Step]]


def frame(
    delta: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None
) -> bytes:
    """An event as OpenAI sends it."""
    event: dict[str, Any] = {
        "id": "chatcmpl-0123456789abcdefghijklmn",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "scripted",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if usage is not None:
        event["usage"] = usage
    return b"data: " + orjson.dumps(event) + b"\n\n"


def frame_call(index: int, call: Call) -> bytes:
    half = len(call.arguments) // 2
    function = {"name": call.name, "arguments": ""}
    first = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return frame({"role": "assistant", "content": None, "tool_calls": [first]}) + b"".join(
        frame({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        for piece in (call.arguments[:half], call.arguments[half:])
    )


def find_text(body: dict[str, Any]) -> str:
    """The text of the last user message."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return str(texts[-1]) if texts else ""


def count_requests(body: dict[str, Any]) -> int:
    """How many requests of the same run there were before this one."""
    roles = [message["role"] for message in body["messages"]]
    after = roles[len(roles) - roles[::-1].index("user") :] if "user" in roles else []
    return after.count("assistant")


_COMMAND = re.compile(
    r"""say\ (?P<count>\d+)\ (?P<kind>words|stamps)\ in\ (?P<seconds>[\d.]+)\ s\b
    | repeat\ (?P<text>.+)
    | call\ (?P<tool>\w+)\ (?=\{)
    | usage\ (?P<usage>\w+(/\w+)?)
    | finish\ (?P<finish>\w+)
    | fail\ (?P<status>\d{3})(\ after\ (?P<after>\d+))?
    | fail\ (?P<fault>hang|cut|garbage|error|endless|empty)\b
    | (?P<forever>forever)\b
    | (?P<then>then\b|\n)""",
    re.VERBOSE | re.DOTALL,
)
_START = re.compile(r"^(?=(say \d|repeat |call \w+ \{|usage \w|finish \w|fail \w))", re.MULTILINE)
_FAULTS: dict[str, Step] = {
    "hang": Hang,
    "cut": Cut,
    "garbage": Send(GARBAGE),
    "error": Send(ERROR),
    "endless": Endless(frame({"content": "more and "})),
    "empty": Say(""),
}


def read_script(text: str) -> list[list[Step]]:
    """The steps of a visitor's text; a command starts a line, `say` may be anywhere."""
    found = _START.search(text) or re.search(r"(?=say \d+ \w+ in [\d.]+ s\b)", text)
    steps: list[list[Step]] = [[]]
    if found is None:
        return []
    rest = text[found.start() :]
    while command := _COMMAND.match(rest := rest.lstrip(" ")):
        end = command.end()
        if command["then"]:
            steps.append([])
        elif command["tool"]:
            _, length = json.JSONDecoder().raw_decode(rest[end:])
            steps[-1].append(Call(command["tool"], rest[end : end + length]))
            end += length
        elif command["forever"]:
            steps += [steps[-1]] * 100
        else:
            steps[-1].append(_read_command(command))
        rest = rest[end:]
    return steps


def _read_command(command: re.Match[str]) -> Step:
    given = command.groupdict()
    step: Step = _FAULTS.get(given["fault"], Hang)
    if given["kind"]:
        count, seconds = int(given["count"]), float(given["seconds"])
        is_words = given["kind"] == "words"
        step = Say(words(count), seconds) if is_words else Stamps(count, seconds)
    elif given["text"]:
        step = Say(given["text"])
    elif given["usage"]:
        step = Usage(given["usage"])
    elif given["finish"]:
        step = Finish(None if given["finish"] == "none" else given["finish"])
    elif given["status"]:
        after = given["after"]
        step = Refuse(int(given["status"]), (("Retry-After", after),) if after else ())
    return step


def follow_text(body: dict[str, Any]) -> list[Step]:
    """The default script: what the visitor's text says for this request of the run."""
    steps = read_script(find_text(body))
    number = count_requests(body)
    is_over = number >= len(steps) or not steps[number]
    is_forever = len(steps) > 100 and not body.get("tools")
    return [Say("Done.")] if is_over or is_forever else steps[number]
