"""What the agent says of itself, in the visitor's language."""

from typing import Final, TypeAlias

from hlas.knowledge.language import Language
from hlas.knowledge.ranking import SmallTalk

Phrase: TypeAlias = dict[Language, str]

# Sent if the tenant has no text of its own.
FALLBACK: Final[Phrase] = {
    "cs": "Na tohle zatím neznám odpověď. Zkuste se prosím zeptat jinak, nebo nás kontaktujte.",
    "en": "I do not know the answer to that yet. Please ask in other words, or contact us.",
}
# Above the questions that the visitor may have meant.
SUGGESTIONS: Final[Phrase] = {
    "cs": "Nejsem si jistý, jestli vám rozumím. Ptáte se na něco z toho?",
    "en": "I am not sure that I understand. Did you mean one of these?",
}
# Above the answer to a question that was understood through the one before it.
TOPIC: Final[Phrase] = {"cs": "K dotazu „{}“:", "en": "About “{}”:"}

SMALL_TALK: Final[dict[SmallTalk, Phrase]] = {
    "greeting": {
        "cs": "Dobrý den! Napište mi svou otázku vlastními slovy, rád poradím.",
        "en": "Hello! Ask me your question in your own words, and I will do my best to help.",
    },
    "thanks": {
        "cs": "Rádo se stalo. Kdybyste potřebovali ještě něco, stačí se zeptat.",
        "en": "You are welcome. If you need anything else, just ask.",
    },
    "goodbye": {
        "cs": "Na shledanou! Kdykoli budete mít otázku, napište mi sem.",
        "en": "Goodbye! Whenever you have a question, write to me here.",
    },
    "assent": {
        "cs": "Dobře. Chcete se zeptat ještě na něco?",
        "en": "All right. Is there anything else that you would like to ask?",
    },
    "robot": {
        "cs": "Jsem automatický asistent tohoto webu, ne člověk. Ptejte se vlastními slovy. "
        "Když odpověď neznám, řeknu vám to.",
        "en": "I am the automatic assistant of this website, not a person. Ask in your own words. "
        "If I do not know the answer, I will say so.",
    },
    "mood": {
        "cs": "Děkuji, daří se mi dobře. S čím vám mohu pomoci? Stačí napsat otázku.",
        "en": "I am fine, thank you. How can I help you? Just write your question.",
    },
    "help": {
        "cs": "Rád pomohu. Napište svou otázku celou větou, třeba „Kdy máte otevřeno?“.",
        "en": "I am glad to help. Write your question as a whole sentence, for example “When are "
        "you open?”.",
    },
}
