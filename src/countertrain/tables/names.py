"""What the name of a column gives away, in English, German, French, Spanish and Dutch."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["PAST", "Hint", "find_fixed", "find_hint", "find_protected", "says_code", "says_id", "split_name"]


@dataclass(frozen=True)
class Hint:
    """Why people rarely can, or should, change what a column of that name says."""

    concept: str
    reason: str
    nominal: bool = False
    """Whether numbers in such a column are codes."""
    in_time: bool = False
    """Whether time may make less of it: then it is no fixed column, but one for the last resort."""


_SEX = Hint("sex", "nobody is asked to be of another sex", nominal=True)
_ORIGIN = Hint("race or ethnicity", "nobody is asked to be of another origin", nominal=True)
_AGE = Hint("age", "people get older by themselves and never younger")
_NATION = Hint("nationality", "nobody is asked for another nationality", nominal=True)
_FAMILY = Hint("marital status", "nobody is asked to marry or to part", nominal=True)
_CHILDREN = Hint("family", "nobody is asked to have other children or dependents")
_FAITH = Hint("religion", "nobody is asked for another faith", nominal=True)
_HEALTH = Hint("disability or health", "nobody is asked to be in better health")
_PLACE = Hint("where somebody lives", "nobody is asked to move")
_REGION = Hint("statistics of a region", "no single person can change them")
_SCHOOL = Hint("education", "nobody can undo school, and more of it takes years")
_TIME = Hint("what only time changes", "nobody can hurry it, or turn it back")
_WINDFALL = Hint("a windfall", "nobody can decide to come by it")
_GRANTED = Hint("a credit limit", "somebody else grants it")
_BILLED = Hint("a bill of before", "nobody can change it afterwards")
PAST = Hint("a count of past events", "nobody can undo what has been, and only time makes less of it", in_time=True)
_PURPOSE = Hint("what it is for", "that is the person's own wish", nominal=True)
_WEIGHT = Hint("a weight of the sample", "it says how many people a row stands for, and nothing of them")
_ID = Hint("an id", "it names people and says nothing of them")

_WORDS: dict[Hint, str] = {  # any of these among the words of a name
    _SEX: """sex gender female male geschlecht weiblich mannlich sexe genre femme homme sexo genero mujer hombre
        geslacht vrouw""",
    _ORIGIN: """race ethnicity ethnic ethnie rasse hautfarbe herkunft abstammung ethnique etnia etnico raza
        etniciteit afkomst herkomst""",
    _AGE: """age alter lebensalter birth birthdate birthday birthyear dob geburtsdatum geburtsjahr geburtstag naissance
        edad nacimiento leeftijd geboortedatum geboortejaar senior""",
    _NATION: """nationality citizenship citizen immigrant foreign foreigner staatsangehorigkeit nationalitat
        staatsburgerschaft auslander nationalite citoyennete nacionalidad ciudadania nationaliteit""",
    _FAMILY: """marital married marriage familienstand verheiratet ehestand matrimonial matrimoniale marie conyugal
        casado casada gehuwd huwelijk spouse ehepartner conjoint conyuge echtgenoot""",
    _CHILDREN: """dependents dependants children kinder kinderzahl enfants hijos kinderen""",
    _FAITH: """religion religious faith konfession religionszugehorigkeit bekenntnis religieux confesion religioso
        religie geloof geloofsovertuiging""",
    _HEALTH: """disability disabled handicap handicapped behinderung schwerbehindert invalidite discapacidad
        minusvalia beperking arbeidsongeschikt pregnant pregnancy schwanger""",
    _PLACE: """zip zipcode postcode postal plz postleitzahl bundesland wohnort codigopostal woonplaats latitude
        longitude country county""",
    _SCHOOL: """education educational schooling diploma bildung schulbildung schulabschluss studium scolarite
        diplome educacion estudios opleiding onderwijs""",
    _TIME: """tenure seniority experience anciennete antiguedad betriebszugehorigkeit dienstjahre dienstalter
        berufserfahrung berufsjahre ervaring dienstjaren""",
    _WINDFALL: """windfall inheritance inherited lottery erbschaft erbe heritage herencia erfenis""",
    PAST: """delinquency delinquencies delinquent delinq arrears overdue defaults defaulted bankruptcy bankruptcies
        inquiries enquiries foreclosures chargeoffs derogatory convictions arrests priors
        zahlungsverzug zahlungsverzuge zahlungsausfall zahlungsausfalle zahlungsruckstande verzug mahnung mahnungen
        insolvenz insolvenzen kreditanfragen vorstrafen retards impayes faillite faillites retrasos atrasos impagos mora
        morosidad quiebras incumplimientos achterstand achterstanden betalingsachterstanden wanbetaling wanbetalingen
        aanmaningen faillissement""",
    _PURPOSE: """purpose verwendungszweck kreditzweck finalidad proposito leendoel kredietdoel""",
    _GRANTED: "kreditlimit kreditrahmen kredietlimiet",
    _REGION: """unemployment arbeitslosenquote arbeitslosigkeit chomage desempleo paro werkloosheid gdp bip pib bbp
        inflation inflacion inflatie euribor cpi""",
}
_NAMES: dict[Hint, str] = {  # a whole name, as its words without what is between them
    _FAMILY: """relationship relationshipstatus partner maritalstatus etatcivil situationfamiliale estadocivil
        burgerlijkestaat burgerlijkestand""",
    _NATION: "nativecountry countryofbirth placeofbirth birthplace geburtsland lieudenaissance geboorteland",
    _PLACE: """state region province provincia departement gemeente city stadt ville ciudad stad housing housingtype
        homeownership homeowner residencetype wohnsituation wohnform logement vivienda huisvesting""",
    _REGION: "population empvarrate nremployed consconfidx conspriceidx crimerate",
    _TIME: "numcompaniesworked previousemployers",
    _GRANTED: "creditlimit limitbal limitbalance cardlimit limitedecredit limitedecredito plafonddecredit",
    _WEIGHT: "fnlwgt finalweight sampleweight samplingweight surveyweight caseweight stichprobengewicht",
}
_IDS = "id ids uuid guid rowid rowno rownumber recordid unnamed index identifiant matricule identificador"
_NUMBERED = re.compile(
    r"(customer|client|account|policy|case|row|record|kunden|konto|vertrags|klant|dossier)(no|nr|num|number|nummer)$"
)
_CODES = "code codes zip zipcode postcode postal plz postleitzahl kode cod codigo category kategorie"
_BILLS = "bill bills invoice rechnung facture factura factuur"
_LATE = "late missed skipped retard verspatete verspateten verpasste verpassten"
_PAID = "payment payments paid days times installments instalments paiement zahlung zahlungen raten"
_UNITS = "year years yrs month months days weeks jahre monate annees mois anos meses jaren maanden"
_PASSED = """since at with employed employment working worked customer client member history service company job role
    book residence address seit depuis desde sinds"""
_NOT_OF_PEOPLE = "satisfaction score rating car vehicle auto fahrzeug account konto loan credit"
_BY_WORD = {word: hint for hint, words in _WORDS.items() for word in words.split()}
_BY_NAME = {name: hint for hint, names in _NAMES.items() for name in names.split()}


def split_name(name: str) -> list[str]:
    """`MaritalStatus`, `marital-status` and `marital status` as the same words, without accents."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", plain)
    return re.findall(r"[a-z]+", plain.lower())


def find_hint(name: str) -> Hint | None:
    """Why what this column says should stay as it is; None where its name does not tell."""
    words = split_name(name)
    if says_id(name):
        return _ID
    if "".join(words) in _BY_NAME:
        return _BY_NAME["".join(words)]
    found = next((_BY_WORD[word] for word in words if word in _BY_WORD), None)
    if found is None and {*_BILLS.split()} & {*words} and name[-1].isdigit():
        return _BILLED  # one of several: what is billed next has no number yet
    if found is None and ("pastdue" in "".join(words) or ({*_LATE.split()} & {*words} and {*_PAID.split()} & {*words})):
        return PAST
    if found is None and {*_UNITS.split()} & {*words} and {*_PASSED.split()} & {*words}:
        return _TIME
    return None if found in (_AGE, _ORIGIN, _SCHOOL, _TIME) and {*_NOT_OF_PEOPLE.split()} & {*words} else found


def find_fixed(names: Iterable[str]) -> list[str]:
    """The columns that people rarely can or should change, by their names."""
    hints = ((name, find_hint(name)) for name in names)
    return [name for name, hint in hints if hint is not None and not hint.in_time]


def find_protected(name: str) -> str | None:
    """What a column is by its name, if decisions should hardly ever rest on it: sex, origin, faith, health, family."""
    hint = find_hint(name)
    return None if hint not in (_SEX, _ORIGIN, _NATION, _FAITH, _HEALTH, _FAMILY) else hint.concept


def says_id(name: str) -> bool:
    """Whether a name says that it is that of ids: `ID`, `customer_id`, `Kundennummer`."""
    words = split_name(name)
    if not words:
        return False
    return words[-1] in _IDS.split() or words[0] in ("id", "unnamed") or bool(_NUMBERED.search("".join(words)))


def says_code(name: str) -> bool:
    """Whether a name says that its numbers are codes: `branch_code`, `zip`."""
    return bool({*_CODES.split()} & {*split_name(name)})
