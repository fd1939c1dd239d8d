"""How a tenant's widget looks. The widget ignores values it does not understand."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from hlas.payloads import Line, Text

# Of the widget's own texts.
Language: TypeAlias = Literal["cs", "en"]
Colour = Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]
Suggestion = Annotated[Line, Field(min_length=1, max_length=80)]


class LookTexts(BaseModel):
    """The texts of a widget in one language."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[Line, Field(min_length=1, max_length=60)] | None = None
    subtitle: Annotated[Line, Field(min_length=1, max_length=80)] | None = None
    greeting: Annotated[Text, Field(min_length=1, max_length=500)] | None = None
    placeholder: Annotated[Line, Field(min_length=1, max_length=80)] | None = None
    launcher: Annotated[Line, Field(min_length=1, max_length=24)] | None = None
    notice: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    suggestions: Annotated[list[Suggestion], Field(max_length=6)] | None = None


class Looks(LookTexts):
    """A tenant's `ui_config`; fields left out have the widget's defaults."""

    language: Annotated[str, Field(pattern=r"^[A-Za-z]{2}(-[A-Za-z]{2})?$")] | None = None
    color: Colour | None = None
    color_text: Colour | None = None
    position: Literal["left", "right"] | None = None
    theme: Literal["auto", "light", "dark"] | None = None
    z_index: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    privacy_url: (
        Annotated[Line, Field(max_length=500, pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://\S+$")] | None
    ) = None
    texts: dict[Language, LookTexts] | None = Field(
        None, description="texts for pages in this language, instead of those above"
    )

    def store(self) -> dict[str, object]:
        """Without what was left out."""
        stored = self.model_dump(exclude_none=True)
        texts = {language: given for language, given in stored.pop("texts", {}).items() if given}
        return {**stored, "texts": texts} if texts else stored
