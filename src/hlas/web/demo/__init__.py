"""The looks of the demo tenant's widget. The English page overrides the texts."""

DEMO_UI_CONFIG: dict[str, object] = {
    "title": "Javornet",
    "subtitle": "Zákaznická podpora",
    "greeting": "Dobrý den! Poradím s **fakturami**, výpadky, tarify i dostupností.",
    "color": "#0b6b57",
    "color_text": "#ffffff",
    "position": "right",
    "launcher": "chat",
    "suggestions": ["Kde najdu fakturu?", "Nejde mi internet", "Jaké máte tarify?"],
}
