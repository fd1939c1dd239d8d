"""Reads a model's answer from the bytes of a provider's response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson

Finish: TypeAlias = Literal["stop", "length", "content_filter", "tool_calls"]

LONGEST_LINE = 2**20
LONGEST_ARGUMENTS = 64 * 2**10
MOST_CALLS = 8
# No token of a known vocabulary is longer on average; a server that ignores max_tokens is cut off.
CHARACTERS_PER_TOKEN = 16
# An event has about 300 bytes around its text.
BYTES_PER_TOKEN = 2048
# More than any context window.
MOST_TOKENS = 100_000_000

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str
    # The provider's own data, to be sent back with the call: Gemini refuses it otherwise.
    extra: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the provider says it has counted."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer: text, tool calls or both.

    After the finish `length` the arguments of the last call may be incomplete.
    """

    text: str
    calls: tuple[ToolCall, ...]
    finish: Finish
    # None: not reported, or nonsense.
    tokens: Tokens | None

    def to_message(self) -> dict[str, object]:
        """The answer as a message of the next request."""
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [_to_json(call) for call in self.calls]
        return message


def _to_json(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    extra = {"extra_content": call.extra} if call.extra else {}
    return {"id": call.id, "type": "function", "function": function, **extra}


class ModelError(Exception):
    """A model did not answer; the text is a static code, for the log."""

    def __init__(
        self,
        code: str,
        *,
        is_timeout: bool = False,
        may_be_paid: bool = True,
        tokens: Tokens | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.is_timeout = is_timeout
        # False: the provider has processed nothing.
        self.may_be_paid = may_be_paid
        # Known where the answer is complete, but empty.
        self.tokens = tokens


@dataclass(slots=True)
class _Call:
    """A tool call whose pieces are still coming."""

    id: str
    name: str
    extra: Mapping[str, object] | None = None
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.length += len(piece)
        if self.length > LONGEST_ARGUMENTS:
            raise ModelError("too_long")

    def is_complete(self) -> bool:
        try:
            orjson.loads("".join(self.pieces))
        except orjson.JSONDecodeError:
            return False
        return True


class CompletionReader:
    """Is fed with bytes as they come; the result is the same however they are cut.

    Understands an event stream, and the JSON of servers that do not stream.
    """

    def __init__(self, max_tokens: int) -> None:
        self._longest_text = max_tokens * CHARACTERS_PER_TOKEN
        self._bytes_left = LONGEST_LINE + max_tokens * BYTES_PER_TOKEN
        # The beginning of a line whose end has not come yet.
        self._line: list[bytes] = []
        self._line_length = 0
        # None until the first byte.
        self._is_json: bool | None = None
        self._has_events = False
        self._texts: list[str] = []
        self._length = 0
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}
        self._finish: Finish | None = None
        self._tokens: Tokens | None = None
        # [DONE] was seen.
        self.is_done = False

    @property
    def has_finished(self) -> bool:
        """Nothing but the usage can follow."""
        return self.is_done or self._finish is not None

    def feed(self, chunk: bytes) -> str:
        """Take bytes and return the text in them."""
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            if self.has_finished:
                return ""
            raise ModelError("too_long")
        if self._is_json is None and (start := chunk.lstrip()):
            self._is_json = start.startswith(b"{")
        if self._is_json or b"\n" not in chunk:
            self._line.append(chunk)
            self._line_length += len(chunk)
            if self._line_length > LONGEST_LINE and not self.has_finished:
                raise ModelError("too_long")
            return ""
        if self._line:
            chunk = b"".join((*self._line, chunk))
        lines = chunk.split(b"\n")
        rest = lines.pop()
        self._line = [rest] if rest else []
        self._line_length = len(rest)
        return self._add("".join([self._read_line(line) for line in lines if line]))

    def end(self) -> str:
        """Take the end of the body and return the text that it completes."""
        last = b"".join(self._line)
        try:
            text = self._add(self._read_event(last) if self._is_json else self._read_line(last))
        except ModelError as error:
            if self.has_finished:
                # Only the usage is missing.
                return ""
            # Half an event is not garbage.
            raise ModelError("cut" if error.code == "garbage" else error.code) from None
        if self._is_json:
            self._finish = self._finish or "stop"
        if not self.has_finished:
            is_text = self._is_json is not None and not self._has_events
            raise ModelError("garbage" if is_text else "cut")
        return text

    def complete(self) -> Completion:
        text = "".join(self._texts)
        calls = tuple(
            ToolCall(
                call.id or f"call_{number}", call.name, "".join(call.pieces) or "{}", call.extra
            )
            for number, call in enumerate(self._calls)
        )
        if not calls and not text.strip():
            raise ModelError("empty", tokens=self._tokens)
        finish = self._finish or "stop"
        # Gemini and Ollama say `stop` although there are calls.
        if finish in {"stop", "tool_calls"}:
            finish = "tool_calls" if calls else "stop"
        return Completion(text, calls, finish, self._tokens)

    def _add(self, text: str) -> str:
        if not text:
            return ""
        if "\0" in text:
            # PostgreSQL cannot store it.
            text = text.replace("\0", "")
        self._length += len(text)
        if self._length > self._longest_text:
            raise ModelError("too_long")
        self._texts.append(text)
        return text

    def _read_line(self, line: bytes) -> str:
        if self.is_done:
            return ""
        has_finished = self.has_finished
        try:
            return self._read_field(line)
        except ModelError:
            if not has_finished:
                raise
            # The answer is complete; at most its usage is lost.
            return ""

    def _read_field(self, line: bytes) -> str:
        if line.startswith(b"data:"):
            return self._read_event(line[5:])
        if line.startswith(b"event:") and line[6:].strip() == b"error":
            raise ModelError("error_frame")
        return ""

    def _read_event(self, data: bytes) -> str:
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            data = data.strip()
            if data and data != b"[DONE]":
                raise ModelError("garbage") from None
            self.is_done = self.is_done or bool(data)
            return ""
        self._has_events = True
        try:
            return self._take(event)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise ModelError("garbage") from None

    def _take(self, event: dict[str, Any]) -> str:
        """Take an event of any shape: what is not as expected raises, or is ignored."""
        if event.get("error"):
            raise ModelError("error_frame")
        if usage := event.get("usage"):
            self._tokens = _read_tokens(usage)
        choices = event.get("choices")
        if not choices:
            return ""
        choice = choices[0]
        if finish := choice.get("finish_reason"):
            self._finish = _FINISHES.get(finish, "stop")
        delta = choice.get("delta") or choice.get("message") or {}
        for piece in delta.get("tool_calls") or ():
            self._take_call(piece)
        if function := delta.get("function_call"):
            self._take_call({"function": function})
        text = delta.get("content") or ""
        if not isinstance(text, str):
            raise ModelError("garbage")
        return text

    def _take_call(self, piece: dict[str, Any]) -> None:
        function = piece.get("function") or {}
        call_id, name = str(piece.get("id") or ""), str(function.get("name") or "")
        call = self._find_call(piece.get("index"), call_id, name)
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            # Some servers send the object itself.
            arguments = orjson.dumps(arguments).decode()
        call.add(arguments)
        call.extra = piece.get("extra_content") or call.extra

    def _find_call(self, index: object, call_id: str, name: str) -> _Call:
        """The call that a piece belongs to: indexes are missing at some servers, or always 0."""
        call = self._by_index.get(index)
        if call is None and index is None and self._calls:
            call = self._calls[-1]
        if call is not None and not _is_another(call, index, call_id, name):
            call.id = call.id or call_id
            call.name = call.name or name
            return call
        if len(self._calls) == MOST_CALLS:
            raise ModelError("too_long")
        call = _Call(call_id, name)
        self._calls.append(call)
        self._by_index[index] = call
        return call


def _is_another(call: _Call, index: object, call_id: str, name: str) -> bool:
    """Whether a piece with this id and name begins a new call."""
    if call_id and call.id:
        return call_id != call.id
    if not name or not call.name:
        return False
    # Some servers repeat the name with every piece.
    return name != call.name or (index is None and call.is_complete())


def _read_tokens(usage: dict[str, Any]) -> Tokens | None:
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(read) is not int or type(written) is not int:
        return None
    # No prompt is empty: a server that reports 0 has not counted.
    is_sane = 0 < read <= MOST_TOKENS and 0 <= written <= MOST_TOKENS
    return Tokens(read, written) if is_sane else None
