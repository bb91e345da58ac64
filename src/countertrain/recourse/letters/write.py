"""Letters written into a folder, a file per person and format, and a record beside each."""

import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countertrain.files import write_bytes
from countertrain.recourse.codes import Codes, CodeSource
from countertrain.recourse.letters.browser import open_printer
from countertrain.recourse.letters.compose import Author
from countertrain.recourse.letters.owner import Owner, OwnerSource
from countertrain.recourse.letters.templates import read_templates
from countertrain.recourse.why import PersonReasons, find_reasons
from countertrain.tables.names import find_protected
from countertrain.words import join_phrases, list_phrases, suggest

if TYPE_CHECKING:
    from countertrain.recourse.answer import Recourse

__all__ = ["FORMATS", "write_letters"]

FORMATS = ("html", "text", "pdf")
"""What letters may be written as."""
_SUFFIXES = {"html": ".html", "text": ".txt", "pdf": ".pdf"}
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def write_letters(
    recourse: "Recourse",
    out: str | PathLike[str],
    *,
    owner: OwnerSource = None,
    reasons: CodeSource = None,
    templates: Sequence[str | PathLike[str]] = (),
    formats: Sequence[str] = ("html",),
    ids: Sequence[Any] | None = None,
    everyone: bool = False,
    overwrite: bool = False,
    now: datetime | None = None,
) -> list[Path]:
    """A letter to each person who does not have the decision wanted, or to `everyone`; returns the files of letters.

    They are called by the place of the person's row, or by `ids`, one per row: nothing else of a person is in a name.
    Beside each letter is a record of the same name, as JSON. Nothing is written unless all letters can be, and nothing
    is overwritten unless that is asked for.
    """
    formats = _check_formats(formats)
    grounds = recourse.grounds
    if grounds is None:
        raise ValueError("letters need the model that decided; write them where the recourse was found")
    decider, schema = grounds.decider, grounds.decider.encoder.schema
    writer = Owner.read(owner, schema, decider.classes)
    decisions = {str(label): writer.name_decision(label, label) for label in decider.classes}
    codes = Codes.read(reasons, schema).call(writer.labels, writer.values, decisions)
    filled = read_templates(templates)
    rows = [i for i in range(len(recourse)) if everyone or recourse.decision[i] != recourse.target[i]]
    names = _name_letters(rows, ids, len(recourse))
    folder = Path(out)
    _check_free(folder, names, formats, overwrite=overwrite)
    author = Author(decider, writer, codes, now or datetime.now(UTC).astimezone())
    why = find_reasons(recourse, codes)
    _warn_of_protected([why[row] for row in rows])
    written: list[Path] = []
    with ExitStack() as stack:
        printer = stack.enter_context(open_printer()) if "pdf" in formats else None
        letters = [author.compose(name, recourse[row], why[row]) for row, name in zip(rows, names, strict=True)]
        pages = {kind: [filled[kind].fill(letter) for letter in letters] for kind in _list_kinds(formats)}
        folder.mkdir(parents=True, exist_ok=True)
        for i, (row, name) in enumerate(zip(rows, names, strict=True)):
            contents = {kind: texts[i].encode() for kind, texts in pages.items() if kind in formats}
            if printer is not None:
                contents["pdf"] = printer.print(pages["html"][i])
            files = {folder / f"letter-{name}{_SUFFIXES[kind]}": content for kind, content in contents.items()}
            for path, content in files.items():
                write_bytes(path, content)
            record = author.record(row, name, recourse[row], why[row]) | {
                "files": {path.name: hashlib.sha256(content).hexdigest() for path, content in files.items()},
                "templates": {kind: filled[kind].digest for kind in _list_kinds(formats)},
            }
            text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
            write_bytes(folder / f"letter-{name}.json", f"{text}\n".encode())
            written += files
    return written


def _warn_of_protected(people: Sequence[PersonReasons]) -> None:
    """Say how many are told that something counts against them on which decisions are hardly ever to rest."""
    named = {one.row: [r.column for r in one.reasons if find_protected(r.column) is not None] for one in people}
    n, columns = sum(map(bool, named.values())), dict.fromkeys(chain.from_iterable(named.values()))
    if not n:
        return
    concepts = join_phrases([f"{column} ({find_protected(column)})" for column in columns])
    warnings.warn(
        f"{n:,} of {len(people):,} letters name {concepts} as a reason, because the model decides by that; a decision "
        "that rests on it may be unlawful: look at the report's groups, and train without the column",
        UserWarning,
        stacklevel=3,
    )


def _check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    given = tuple(dict.fromkeys([formats] if isinstance(formats, str) else formats))
    wrong = [one for one in given if one not in FORMATS]
    if wrong or not given:
        said = f"got {wrong[0]!r}; {suggest(wrong[0], FORMATS)}" if wrong else "got none"
        raise ValueError(f"format must be among {', '.join(FORMATS)}; {said}")
    return given


def _list_kinds(formats: Sequence[str]) -> list[str]:
    """The kinds of templates that formats need: PDF is printed from HTML."""
    return list(dict.fromkeys("html" if one == "pdf" else one for one in formats))


def _name_letters(rows: Sequence[int], ids: Sequence[Any] | None, n: int) -> list[str]:
    """What each letter is called after: the place of the row, or its id; refused where ids are no names of files."""
    if ids is None:
        return [f"{row:0{max(4, len(str(n - 1)))}d}" for row in rows]
    if len(ids) != n:
        raise ValueError(f"ids must be one for each of {n} people; got {len(ids)}")
    names = [str(ids[row]) for row in rows]
    wrong = [f"row {row} has {name!r}" for row, name in zip(rows, names, strict=True) if not _SAFE.fullmatch(name)]
    if wrong:
        raise ValueError(
            "ids must be letters, digits, dots, dashes and underscores, at most 64, to name files by; "
            f"{list_phrases(wrong, 5)}; leave out the ids, and letters are called by the place of the row"
        )
    twice = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if twice:
        raise ValueError(f"ids must differ from person to person; {list_phrases(twice, 5)} is there more than once")
    return names


def _check_free(folder: Path, names: Sequence[str], formats: Sequence[str], *, overwrite: bool) -> None:
    """Refuse to write where something is already."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder; {folder} is a file; choose another one")
    suffixes = [*(_SUFFIXES[one] for one in formats), ".json"]
    there = [path for name in names for s in suffixes if (path := folder / f"letter-{name}{s}").exists()]
    if there and not overwrite:
        listed = list_phrases([path.name for path in there], 3)
        raise ValueError(f"{folder} holds {listed} already; choose another folder, or say overwrite (--overwrite)")
