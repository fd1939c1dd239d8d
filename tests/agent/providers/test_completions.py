"""The reader of a provider's bytes: quirks of real servers, bounds, and cuts at every byte."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlas.agent.providers.completions import (
    LONGEST_ARGUMENTS,
    LONGEST_LINE,
    Completion,
    CompletionReader,
    ModelError,
    Tokens,
    ToolCall,
)
from model_scripts import DONE, Call, frame, frame_call

FINISH = frame({}, "stop")
CALLED = frame({}, "tool_calls")


def event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def usage(read: object, written: object) -> bytes:
    return event(choices=[], usage={"prompt_tokens": read, "completion_tokens": written})


def calls(*pieces: dict[str, object]) -> bytes:
    """One event for each piece of a tool call."""
    return b"".join(frame({"tool_calls": [piece]}) for piece in pieces)


def read(stream: bytes, *cuts: int, max_tokens: int = 100) -> tuple[Completion, str]:
    """Feed the stream, cut at these places; return the completion and the text as it came."""
    reader = CompletionReader(max_tokens)
    places = [0, *sorted(cuts), len(stream)]
    texts = [reader.feed(stream[a:b]) for a, b in pairwise(places) if a < b]
    texts.append(reader.end())
    return reader.complete(), "".join(texts)


def fail(stream: bytes, max_tokens: int = 100) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read(stream, max_tokens=max_tokens)
    return caught.value


HELLO = frame({"role": "assistant", "content": ""}) + frame({"content": "Ahoj, "})
PLAIN = HELLO + frame({"content": "žížalo 🐛!"}) + FINISH + usage(12, 5) + DONE
ANSWER = Completion("Ahoj, žížalo 🐛!", (), "stop", Tokens(12, 5))

ANSWERS = {
    "as OpenAI sends it": (PLAIN, ANSWER),
    "no space": (PLAIN.replace(b"data: ", b"data:"), ANSWER),
    "escaped characters": (
        PLAIN.replace("žížalo 🐛".encode(), b"\\u017e\\u00ed\\u017ealo \\ud83d\\udc1b"),
        ANSWER,
    ),
    "CRLF": (PLAIN.replace(b"\n", b"\r\n"), ANSWER),
    "comments, keep-alives, empty data and other fields": (
        PLAIN.replace(b"data: ", b": ping\n\ndata:\n\nid: 7\nevent: message\nretry: 9\ndata: "),
        ANSWER,
    ),
    "no blank lines": (PLAIN.replace(b"\n\n", b"\n"), ANSWER),
    "no [DONE]": (PLAIN.removesuffix(DONE), ANSWER),
    "no new line at the end": (PLAIN.rstrip(b"\n"), ANSWER),
    "something after [DONE]": (PLAIN + b"data: {nonsense\n\n" + frame({"content": "!"}), ANSWER),
    "no finish reason, but [DONE]": (PLAIN.replace(FINISH, b""), ANSWER),
    "no usage": (PLAIN.replace(usage(12, 5), b""), Completion(ANSWER.text, (), "stop", None)),
    "usage half sent": (
        PLAIN.removesuffix(DONE)[:-20],
        Completion(ANSWER.text, (), "stop", None),
    ),
    "usage with every event: the last": (
        frame({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": 1})
        + frame({"content": "b"}, usage={"prompt_tokens": 9, "completion_tokens": 2})
        + FINISH
        + DONE,
        Completion("ab", (), "stop", Tokens(9, 2)),
    ),
    "usage twice: the last": (
        PLAIN.replace(DONE, usage(13, 6) + DONE),
        Completion(ANSWER.text, (), "stop", Tokens(13, 6)),
    ),
    "null content, null choices": (
        HELLO + frame({"content": None}) + event(choices=None) + FINISH + DONE,
        Completion("Ahoj, ", (), "stop", None),
    ),
    "null delta and null usage": (
        HELLO + event(choices=[{"delta": None, "finish_reason": "stop"}], usage=None),
        Completion("Ahoj, ", (), "stop", None),
    ),
    "NUL, which no database stores": (
        frame({"content": "a\0b"}) + FINISH,
        Completion("ab", (), "stop", None),
    ),
    "not streamed": (
        orjson.dumps(
            {
                "choices": [{"message": {"content": ANSWER.text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 12, "completion_tokens": 5},
            },
            option=orjson.OPT_INDENT_2,
        ),
        ANSWER,
    ),
    "not streamed, a call, no finish reason": (
        b'\n {"choices": [{"message": {"tool_calls": [{"id": "x", "function": {"name": "y"}}]}}]}',
        Completion("", (ToolCall("x", "y", "{}"),), "tool_calls", None),
    ),
}
FIND = {"name": "find", "arguments": '{"q":'}
REST = {"arguments": '"ž"}'}
FOUND = ToolCall("a", "find", '{"q":"ž"}')
SECOND = ToolCall("b", "get", "{}")
NAMELESS = ToolCall("call_0", "find", '{"q":"ž"}')

CALLS: dict[str, tuple[bytes, tuple[ToolCall, ...]]] = {
    "in pieces": (
        calls({"index": 0, "id": "a", "function": FIND}, {"index": 0, "function": REST}),
        (FOUND,),
    ),
    "two at once, pieces mixed": (
        calls(
            {"index": 0, "id": "a", "function": FIND},
            {"index": 1, "id": "b", "function": {"name": "get", "arguments": "{"}},
            {"index": 0, "function": REST},
            {"index": 1, "function": {"arguments": "}"}},
        ),
        (FOUND, SECOND),
    ),
    "no index": (
        calls(
            {"id": "a", "function": FIND},
            {"function": REST},
            {"id": "b", "function": {"name": "get", "arguments": "{}"}},
        ),
        (FOUND, SECOND),
    ),
    "the index is always 0": (
        calls(
            {"index": 0, "id": "a", "function": {"name": "find", "arguments": FOUND.arguments}},
            {"index": 0, "id": "b", "function": {"name": "get", "arguments": "{}"}},
        ),
        (FOUND, SECOND),
    ),
    "no index and no id, names repeated": (
        calls(
            {"function": FIND},
            {"function": {**REST, "name": "find"}},
            {"function": {"name": "find", "arguments": "{}"}},
            {"function": {"name": "get"}},
        ),
        (NAMELESS, ToolCall("call_1", "find", "{}"), ToolCall("call_2", "get", "{}")),
    ),
    "id and name repeated": (
        calls(
            {"index": 0, "id": "a", "function": FIND},
            {"index": 0, "id": "a", "function": {**REST, "name": "find"}},
        ),
        (FOUND,),
    ),
    "arguments as an object": (
        calls({"index": 0, "id": "a", "function": {"name": "find", "arguments": {"q": "ž"}}}),
        (FOUND,),
    ),
    "a function call of the old kind": (
        frame({"function_call": FIND}) + frame({"function_call": REST}, "function_call"),
        (NAMELESS,),
    ),
    "data that Gemini wants back": (
        calls(
            {"id": "a", "function": FIND},
            {"function": REST},
            {"extra_content": {"google": {"thought_signature": "s"}}},
        ),
        (ToolCall("a", "find", '{"q":"ž"}', {"google": {"thought_signature": "s"}}),),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_cut_at_every_byte(name: str) -> None:
    """Each form of an answer is understood, and is the same wherever the stream is cut in two."""
    stream, expected = ANSWERS[name]
    for cut in range(len(stream) + 1):
        completion, text = read(stream, cut)
        assert completion == expected
        assert text == completion.text


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("end", [CALLED, FINISH], ids=["tool_calls", "stop"])
def test_calls_cut_at_every_byte(name: str, end: bytes) -> None:
    """Tool calls in each form are understood, also with the finish reason `stop` (Gemini)."""
    stream, expected = CALLS[name]
    stream += end
    for cut in range(len(stream) + 1):
        assert read(stream, cut)[0] == Completion("", expected, "tool_calls", None)


@given(st.lists(st.integers(0, len(PLAIN)), max_size=40))
def test_cuts_at_random(cuts: list[int]) -> None:
    """Any number of cuts."""
    assert read(PLAIN, *cuts) == (ANSWER, ANSWER.text)


def test_single_bytes() -> None:
    assert read(PLAIN, *range(len(PLAIN))) == (ANSWER, ANSWER.text)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        ("end_turn", "stop"),
    ],
)
def test_finish(reason: str, finish: str) -> None:
    """Edge case 64: an answer that was ended early says so; without a call none is expected."""
    assert read(HELLO + frame({}, reason))[0].finish == finish


def test_length_with_a_call() -> None:
    """Arguments that the limit of tokens has cut off are not taken for complete ones."""
    stream = calls({"index": 0, "id": "a", "function": FIND}) + frame({}, "length")
    expected = Completion("", (ToolCall("a", "find", '{"q":'),), "length", None)
    assert read(stream)[0] == expected


@pytest.mark.parametrize(
    ("counted", "written"),
    [(-1, 5), (5, -1), (10**9, 5), (5, 10**18), (0, 0), (1.5, 2), ("7", 7), (True, 1), (None, 1)],
)
def test_senseless_usage(counted: object, written: object) -> None:
    """Edge case 63: nonsense is not a usage, so that the whole reservation counts."""
    assert read(HELLO + FINISH + usage(counted, written) + DONE)[0].tokens is None


def test_no_output_is_a_usage() -> None:
    assert read(HELLO + FINISH + usage(7, 0))[0].tokens == Tokens(7, 0)


LONG = frame({"content": "x" * 1000})
NINE = b"".join(frame_call(index, Call("find")) for index in range(9))

ERRORS = {
    "nothing": (b"", "cut"),
    "cut after text": (HELLO, "cut"),
    "cut in an event": (HELLO + FINISH[:-20], "cut"),
    "not streamed, cut": (b'{"choices": [{"mess', "cut"),
    "a page": (b"<html>\nWelcome to our hotel\n</html>\n", "garbage"),
    "not JSON": (HELLO + b"data: {nonsense\n\n" + FINISH, "garbage"),
    "not UTF-8": (HELLO + b'data: {"choices": "\xff"}\n\n' + FINISH, "garbage"),
    "an event that is a list": (b"data: [1]\n\n", "garbage"),
    "an event that is null": (b"data: null\n\n", "garbage"),
    "choices that are an object": (event(choices={"a": 1}), "garbage"),
    "a choice that is a number": (event(choices=[1]), "garbage"),
    "a delta that is a list": (event(choices=[{"delta": [1]}]), "garbage"),
    "content that is a list": (frame({"content": [1]}), "garbage"),
    "calls that are numbers": (frame({"tool_calls": [1]}), "garbage"),
    "a finish reason that is a list": (event(choices=[{"finish_reason": ["a"]}]), "garbage"),
    "an index that is a list": (calls({"index": [1], "function": FIND}), "garbage"),
    "usage that is a number": (event(usage=5), "garbage"),
    "an error": (HELLO + event(error={"message": "overloaded"}) + FINISH, "error_frame"),
    "an error event": (HELLO + b"event: error\ndata: {}\n\n" + FINISH, "error_frame"),
    "not streamed, an error": (b'{"error": {"message": "no"}}', "error_frame"),
    "no text": (FINISH + DONE, "empty"),
    "spaces": (frame({"content": " \n "}) + FINISH + DONE, "empty"),
    "filtered at once": (frame({}, "content_filter") + DONE, "empty"),
    "text beyond max_tokens": (LONG * 2 + FINISH, "too_long"),
    "a line without end": (b"data: " + b"x" * LONGEST_LINE, "too_long"),
    "nine calls": (NINE + CALLED, "too_long"),
    "long arguments": (
        frame_call(0, Call("find", '"' + "x" * LONGEST_ARGUMENTS + '"')),
        "too_long",
    ),
    "comments without end": (b": ping\n" * 400_000, "too_long"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    """Edge case 64: each fault has its code; the provider may have counted what it sent."""
    stream, code = ERRORS[name]
    error = fail(stream)
    assert (error.code, str(error)) == (code, code)
    assert (error.is_timeout, error.may_be_paid, error.tokens) == (False, True, None)


AFTERWARDS = {
    "not JSON": b"data: {nonsense\n\n",
    "an error": event(error={"message": "overloaded"}),
    "an error event": b"event: error\ndata: {}\n\n",
    "usage that is a number": event(usage=5),
    "a line without end": b"data: " + b"x" * LONGEST_LINE,
    "comments without end": b": ping\n" * 400_000,
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_fault_after_the_finish_reason(name: str) -> None:
    """A complete answer is not withdrawn, however the bytes are cut; only its usage is missing."""
    answer = HELLO + FINISH
    # A socket is read in pieces that are smaller than the bounds.
    places = range(len(answer) + 9, len(answer + AFTERWARDS[name]), 2**16)
    for cuts in (places, (len(answer), *places), (len(answer) - 1, *places)):
        completion, text = read(answer + AFTERWARDS[name], *cuts)
        assert (completion.text, text, completion.tokens) == ("Ahoj, ", "Ahoj, ", None)


def test_bounds_are_not_too_narrow() -> None:
    """As much as is allowed is an answer."""
    text = "x" * 1600
    assert read(frame({"content": text}) + FINISH)[0].text == text
    arguments = '"' + "x" * (LONGEST_ARGUMENTS - 2) + '"'
    eight = b"".join(frame_call(index, Call("find", arguments)) for index in range(8))
    assert len(read(eight + CALLED)[0].calls) == 8


def test_empty_answer_has_its_usage() -> None:
    """An empty answer is paid for as reported, not with the whole reservation."""
    error = fail(FINISH + usage(12, 0) + DONE)
    assert (error.code, error.tokens) == ("empty", Tokens(12, 0))


def test_message() -> None:
    """An answer is sent back as it came, with what the provider wants to see again."""
    extra = {"google": {"thought_signature": "s"}}
    completion = Completion("a", (ToolCall("x", "find", "{}", extra), SECOND), "tool_calls", None)
    function = {"name": "find", "arguments": "{}"}
    assert completion.to_message() == {
        "role": "assistant",
        "content": "a",
        "tool_calls": [
            {"id": "x", "type": "function", "function": function, "extra_content": extra},
            {"id": "b", "type": "function", "function": {"name": "get", "arguments": "{}"}},
        ],
    }
    assert ANSWER.to_message() == {"role": "assistant", "content": ANSWER.text}
