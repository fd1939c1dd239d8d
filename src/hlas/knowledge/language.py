"""Detects the language of a text, and picks the words that carry its meaning."""

import re
import unicodedata
from typing import Literal, TypeAlias, get_args

Language: TypeAlias = Literal["cs", "en"]

LANGUAGES: tuple[Language, ...] = get_args(Language)

# Limits on the part of a question that is searched: each word is compared with many entries.
MOST_SEARCHED_CHARACTERS = 2000
MOST_WORDS = 20
LONGEST_WORD = 40

# Written without diacritics, as many visitors write.
CZECH = frozenset(
    """
    a aby ahoj aj ale ani ano asi az bez bude budeme budete budou budu by bych bychom byl byla byli
    bylo byt cau ci cim co coz da daji dal dekuji den diky dnes do dobry ho i ja jak jaka jake jako
    jakou jaky jde je jeho jej jeji jen jeste ji jich jim jine jiz jsem jsi jsme jsou jste k kam kde
    kdo kdy kdyz ke kolik ktera ktere kterou ktery ma maji mam mame mate me mezi mi mit mne mnou
    mohl mohla mohu moje moji mou muj musi musim muze muzeme muzete muzu na nad nam nami nas nase
    nasi ne nebo neco nejaka nejake nejaky nekde nekdo nemam nemuzu nez ni nic nim o od on ona oni
    po pod podle pokud potrebuji potrebujeme potrebuju pouze pred pri pro proc prosim proto protoze
    s se si sve svoji svou svuj ta tady tak take taky takze tam te tedy ten tento teto ti tim to
    tobe toho tohle toto tu tuto ty u uz v vam vami vas vase vasem vasi ve vsak vsechno vsechny vy
    z za zda zde zdravim ze nemate nema neni nejsou nejsem sebou sebe tomu nej pak vubec at byste mu
    mimo abych abychom vaseho vasemu vasich tom tou proti jestli takove takovy takova vsem jakych
    jakym jakymi komu nekoho pry kvuli takhle jenom pres nejak vsak mel mela meli byly byvaji byva
    nechci nechceme nemohu nemuzeme nelze lze jdu bys aha teda mne nich nej nemusim nemusi musime
    ktereho kterych kterem kterymi nejakou nejakeho sam sama sami by tento tato toto techto tech
    potom protoze prece asi skoro celkem zrovna vlastne treba prave chceme chcete chci chtel chtela
    chteli
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)
ENGLISH = frozenset(
    """
    a about all also am an and any are as at be been being but by can could did do does doing don
    for from get go going got had has have having hello hey hi how i if in into is it its just know
    let like ll many may me might more much my need no not of off on one or our out over please re s
    said should so some something t tell thank thanks that the their them then there these they
    this those to too ve very want was we were what when where which while who whom why will with
    would yes you your yours
    """.split()  # noqa: SIM905  # a paragraph of words reads better than a page of quotes
)
STOP_WORDS = CZECH | ENGLISH

_WORD = re.compile(r"[^\W_]+")
_CZECH_LETTERS = frozenset("áčďéěíňóřšťúůýž")


def fold(text: str) -> str:
    """Lower case, no diacritics."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    apart = unicodedata.normalize("NFKD", lowered)
    return "".join(character for character in apart if not unicodedata.combining(character))


def detect(text: str) -> Language | None:
    """Detect the language by its stop words and letters; None when they do not decide."""
    words = set(_WORD.findall(fold(text)))
    czech = len(words & (CZECH - ENGLISH))
    if not _CZECH_LETTERS.isdisjoint(unicodedata.normalize("NFC", text.lower())):
        czech += 2
    english = len(words & (ENGLISH - CZECH))
    if czech == english:
        return None
    return "cs" if czech > english else "en"


def meaningful_words(text: str) -> list[str]:
    """The words that are not stop words, each once, at most MOST_WORDS."""
    words = _WORD.findall(text[:MOST_SEARCHED_CHARACTERS].lower())
    distinct = dict.fromkeys(word[:LONGEST_WORD] for word in words)
    kept = [word for word in distinct if len(word) > 1 and fold(word) not in STOP_WORDS]
    return kept[:MOST_WORDS]
