"""What a client asks of one answer."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

# Where the visitor's message keeps them: the run may be answered by another worker.
METADATA = "agent_options"


class Options(BaseModel):
    """Fields left out have the tenant's or the service's settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_steps: Annotated[int, Field(ge=1, le=5)] | None = None
    max_history_messages: Annotated[int, Field(ge=0, le=50)] | None = None
    timeout_ms: Annotated[int, Field(ge=1000, le=60_000)] | None = None
    on_failure: Literal["answer", "error"] = Field(
        "answer", description="`error`: an answer that the model did not write is an error here"
    )
    debug: bool = Field(default=False, description="with a trace, where the tenant allows it")

    def to_metadata(self) -> dict[str, object]:
        """To be stored with the visitor's message; nothing where nothing was asked for."""
        wanted = self.model_dump(exclude_defaults=True)
        return {METADATA: wanted} if wanted else {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> "Options":
        """A visitor's metadata may be anything."""
        try:
            return cls.model_validate(metadata.get(METADATA, {}))
        except ValidationError:
            return cls()
