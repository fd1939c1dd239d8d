"""How well the ranking finds the demo tenant's entries for visitors' own words."""

from dataclasses import replace

import pytest

from hlas.agent import Answer, Question
from hlas.agent.knowledge import KnowledgeAgent
from hlas.agent.ranker import Ranker
from hlas.demo import tenant as demo
from hlas.knowledge.language import detect, fold
from hlas.store.db import Database
from hlas.tenants import tenants
from listeners import Notebook

PARAPHRASES = (
    ("Nemůžu najít vyúčtování za minulý měsíc", "Kde najdu svoji fakturu?"),
    ("chtel bych si stahnout fakturu", "Kde najdu svoji fakturu?"),
    ("neprisla mi faktrua do mailu", "Kde najdu svoji fakturu?"),
    ("Dá se u vás platit kartou?", "Jak mohu zaplatit?"),
    ("jaky je variabilni symbol pro platbu", "Jak mohu zaplatit?"),
    ("Kolik bych platil měsíčně za ten nejrychlejší tarif?", "Jaké tarify nabízíte a kolik stojí?"),
    ("posilate nekde cenik sluzeb?", "Jaké tarify nabízíte a kolik stojí?"),
    ("Máte pokrytí v Horní Lhotě?", "Je internet dostupný na mojí adrese?"),
    ("bydlim v nove ulici, je tam vase optika?", "Je internet dostupný na mojí adrese?"),
    ("od rana mi nejde internet", "Nefunguje mi internet, co mám dělat?"),
    ("Máme doma výpadek, nic se nenačítá", "Nefunguje mi internet, co mám dělat?"),
    ("potrebuju nahlasit poruchu pripojeni", "Nefunguje mi internet, co mám dělat?"),
    ("Bude tento týden nějaká odstávka?", "Plánujete odstávky nebo údržbu sítě?"),
    ("Za jak dlouho přijede technik na montáž?", "Jak probíhá instalace a jak dlouho trvá?"),
    ("chci podat vypoved", "Jak mohu ukončit smlouvu?"),
    ("Jak dlouhá je výpovědní doba u smouvy?", "Jak mohu ukončit smlouvu?"),
    ("Chtěl bych přejít na levnější tarif", "Jak změním tarif?"),
    ("prestehovali jsme se, co s internetem", "Stěhuji se, mohu si internet vzít s sebou?"),
    (
        "v loznici mam mizerny wifi signal",
        "Mám slabou Wi-Fi nebo pomalé připojení, jak to zlepšit?",
    ),
    ("Kdy má otevřeno vaše pobočka?", "Jak vás mohu kontaktovat a kdy máte otevřeno?"),
    ("I need a copy of last month's bill", "Where can I find my invoice?"),
    ("do you accept card payments?", "How can I pay?"),
    ("how much is the cheapest plan per month", "Which plans do you offer and what do they cost?"),
    ("is there fiber in our street", "Is your internet available at my address?"),
    ("the conection has been down since morning", "My internet is not working, what should I do?"),
    (
        "when will the technican come to set it up",
        "How does installation work and how long does it take?",
    ),
    ("I want to cancel my subscription", "How do I end my contract?"),
    ("can I upgrade to something faster?", "How do I change my plan?"),
    (
        "we are relocating to a new flat next month",
        "I am moving house, can I take my internet with me?",
    ),
    ("wifi signal in the bedroom is terrible", "My Wi-Fi is weak or slow, how can I improve it?"),
)

UNRELATED = (
    "Jaké bude zítra počasí v Praze?",
    "Upečete mi recept na svíčkovou?",
    "kdo vyhral hokej vcera vecer",
    "Prodáváte taky ledničky a pračky?",
    "Napiš mi báseň o lásce",
    "What is the capital of France?",
    "Can you recommend a good restaurant nearby?",
    "how do I train my dog to sit",
    "Translate this sentence into German",
    "asdf qwer zxcv",
)

# Held-out questions, used only when the ranking was finished. Never tune to them.
HELD_OUT = (
    ("kam mi chodí účty za internet?", "Kde najdu svoji fakturu?"),
    ("na jaky ucet mam poslat penize", "Jak mohu zaplatit?"),
    ("do kdy musím uhradit fakturu, jaká je splatnost", "Jak mohu zaplatit?"),
    ("Co všechno máte v nabídce a za jakou cenu?", "Jaké tarify nabízíte a kolik stojí?"),
    ("dostanu u nas na vesnici vas internet", "Je internet dostupný na mojí adrese?"),
    ("uz hodinu jsem bez pripojeni", "Nefunguje mi internet, co mám dělat?"),
    ("chci zrusit internet", "Jak mohu ukončit smlouvu?"),
    ("Dá se navýšit rychlost?", "Jak změním tarif?"),
    ("Budeme se stěhovat do jiného bytu", "Stěhuji se, mohu si internet vzít s sebou?"),
    ("internet je dneska hrozne pomaly", "Mám slabou Wi-Fi nebo pomalé připojení, jak to zlepšit?"),
    ("Můžu někam zavolat?", "Jak vás mohu kontaktovat a kdy máte otevřeno?"),
    ("where do I download the invoce", "Where can I find my invoice?"),
    ("is maintenance scheduled for tonight?", "Are there any planned outages or maintenance?"),
    ("what's the notice period", "How do I end my contract?"),
    ("what are your opening hours on friday", "How can I contact you and when are you open?"),
)

HELD_OUT_UNRELATED = (
    "Kolik je hodin v New Yorku?",
    "potrebuju opravit auto",
    "Jak se jmenuje český prezident?",
    "What is the meaning of life?",
    "do you sell shoes",
)


async def ask(operators: Database, database: Database, texts: list[str]) -> list[Answer]:
    """What the demo tenant answers, with questions in place of the ids of entries."""
    made = await tenants.add(operators, "Demo", "demo", [])
    await demo.load_demo(operators, made.id)
    rows = await operators.all("select id, question from knowledge")
    questions = {str(row["id"]): str(row["question"]) for row in rows}
    agent = KnowledgeAgent(Ranker(database))
    found: list[Answer] = []
    for text in texts:
        question = Question(str(made.id), str(made.id), text, detect(text) or "cs")
        answer = await agent.answer(question, Notebook())
        named = tuple(questions[entry_id] for entry_id in answer.entries)
        found.append(replace(answer, entries=named))
    return found


@pytest.mark.parametrize(
    ("asked", "least"),
    [pytest.param(PARAPHRASES, 27, id="paraphrases"), pytest.param(HELD_OUT, 12, id="held-out")],
)
async def test_paraphrases(
    operators: Database, database: Database, asked: tuple[tuple[str, str], ...], least: int
) -> None:
    """Paraphrases in Czech and English, with typos and without diacritics, find their entry.

    It is sent or offered; without meaning, too. A wrong one is never sent.
    """
    found = await ask(operators, database, [text for text, _ in asked])
    pairs = list(zip(asked, found, strict=True))
    missed = [
        (text, answer.entries) for (text, wanted), answer in pairs if wanted not in answer.entries
    ]
    print(f"{len(asked) - len(missed)} of {len(asked)} found; missed: {missed}")
    assert len(asked) - len(missed) >= least, missed
    sent = [(text, answer.entries) for (text, _), answer in pairs if answer.source == "knowledge"]
    assert [one for one in sent if one in missed] == []


async def test_unrelated_questions(operators: Database, database: Database) -> None:
    """An unrelated question is never answered."""
    found = await ask(operators, database, [*UNRELATED, *HELD_OUT_UNRELATED])
    assert [answer.source for answer in found] == ["fallback"] * 15


async def test_every_own_question(operators: Database, database: Database) -> None:
    """An entry's own question finds it with full confidence, also without diacritics."""
    made = await tenants.add(operators, "Demo", "demo", [])
    await demo.load_demo(operators, made.id)
    for entry in demo.read_entries():
        for text in (entry.question, fold(entry.question).upper()):
            language = entry.language or "cs"
            best = (await Ranker(database).rank(str(made.id), text, language))[0]
            assert best.answer == entry.answer, text
            assert best.confidence > 0.99, text
