"""How much of the source is typed: `Any` switches the type checker off."""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/hlas"
MOST_PER_THOUSAND_LINES = 5


def test_any() -> None:
    """Fewer than five `Any` in a thousand lines, imports and comments included."""
    texts = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    lines = sum(text.count("\n") for text in texts)
    found = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    assert lines > 10_000
    assert 1000 * found / lines < MOST_PER_THOUSAND_LINES
