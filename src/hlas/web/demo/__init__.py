"""The demo page: a small internet provider's site with the widget on it."""

from typing import Any

DEMO_UI_CONFIG: dict[str, Any] = {
    "title": "Vlnka Internet",
    "greeting": "Dobrý den! Jak vám mohu pomoci?",
    "color": "#0f766e",
    "suggestions": ["Kde najdu fakturu?", "Nejde mi internet", "Jaké máte tarify?"],
}
