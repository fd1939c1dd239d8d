"""The demo page's tenant: how its widget looks. The English page overrides the words."""

from typing import Any

DEMO_UI_CONFIG: dict[str, Any] = {
    "title": "Javornet",
    "subtitle": "Zákaznická podpora",
    "greeting": "Dobrý den! Poradím s **fakturami**, výpadky, tarify i dostupností.",
    "color": "#0b6b57",
    "color_text": "#ffffff",
    "position": "right",
    "launcher": "chat",
    "suggestions": ["Kde najdu fakturu?", "Nejde mi internet", "Jaké máte tarify?"],
}
