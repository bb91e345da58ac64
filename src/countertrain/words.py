"""Words for people: did-you-mean, lists of names, plain values, and what pydantic found wrong in a sentence."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

__all__ = [
    "explain_mistakes", "first_mistake", "join_phrases", "list_names", "list_phrases", "plain", "read_sign",
    "refuse_attribute", "say_mistake", "suggest",
]  # fmt: skip

Mistake = Mapping[str, Any]
"""One of the errors that pydantic lists: type, loc, msg, input, ctx."""


class Mistakes(Protocol):
    """What pydantic raises; named by what is used of it, because importing pydantic takes a tenth of a second."""

    def errors(self) -> Sequence[Any]:
        """All that is wrong."""
        ...


def plain(value: Any) -> Any:
    """A number or truth value of NumPy as Python's own; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def read_sign(given: Any) -> str:
    """A direction in any usual spelling, 1 and -1 being scikit-learn's and LightGBM's, as "+", "-", or "0" for none."""
    signs = {"+": "+", "increase": "+", 1: "+", "-": "-", "decrease": "-", -1: "-", "0": "0", 0: "0"}
    given = plain(given)
    if isinstance(given, bool) or not isinstance(given, str | int | float) or given not in signs:
        raise ValueError("must be '+' (or 1, 'increase'), '-' (or -1, 'decrease') or 0 for each column")
    return signs[given]


def suggest(name: object, known: Iterable[object], otherwise: str | None = None) -> str:
    """The way out for a name that is not known: the nearest known one, or what there is."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(str(name), names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are {list_names(names)}" if otherwise is None else otherwise


def refuse_attribute(module: str, known: Sequence[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module of these public names, whose error has the nearest of them."""

    def refuse(name: str) -> Any:
        hint = "" if name.startswith("_") else f"; {suggest(name, known)}"  # Python and its tools ask for many of these
        raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")

    return refuse


def list_names(names: Collection[object], most: int = 12) -> str:
    """`'a', 'b' and 3 more`: names or values as they would be typed."""
    return list_phrases([repr(name) for name in names], most)


def list_phrases(phrases: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(phrases) - most} more" if len(phrases) > most else ""
    return (", ".join(phrases[:most]) or "none") + more


def join_phrases(phrases: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([*([", ".join(phrases[:-1])] if phrases[1:] else []), *phrases[-1:]])


def first_mistake(mistakes: Iterable[Mistake]) -> Mistake:
    """The mistake to name: a typo, if there is one, for it explains what else is wrong."""
    return min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")


def say_mistake(mistake: Mistake) -> str:
    """What is wrong with a value, in words that follow its name: `must be greater than 0`."""
    said = re.sub(r"^\w+ should", "must", str(mistake["msg"]).removeprefix("Value error, "))
    said = said.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return said[0].lower() + said[1:]


def explain_mistakes(error: Mistakes, known: Iterable[str]) -> str:
    """All that is wrong with settings, of which these are known, in one sentence; a typo explains what is missing."""
    names, mistakes = list(known), error.errors()
    if any(mistake["type"] == "extra_forbidden" for mistake in mistakes):
        mistakes = [mistake for mistake in mistakes if mistake["type"] != "missing"]
    clauses: dict[str, str] = {}  # a value that fits no member of a union is one mistake
    for mistake in mistakes:
        # without places in a list and members of a union, such as constrained-int
        name = ".".join(part for part in map(str, mistake["loc"]) if part.isidentifier())
        clauses.setdefault(name, _explain_mistake(name, mistake, names))
    return ", and ".join(clauses.values())


def _explain_mistake(name: str, mistake: Mistake, known: Sequence[str]) -> str:
    if mistake["type"] == "extra_forbidden":
        return f"unknown setting {name!r}; {suggest(name, known)}"
    if mistake["type"] == "missing":
        return f"setting {name!r} is missing"
    if not name:  # of several settings together
        return str(mistake["msg"]).removeprefix("Value error, ")
    hint = getattr(mistake.get("ctx", {}).get("error"), "hint", "")  # of a name that is not known
    return f"setting {name!r} {say_mistake(mistake)}; got {mistake['input']!r}{'; ' if hint else ''}{hint}"
