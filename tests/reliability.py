"""`python -m tests.reliability`: what was recorded of kills, faults, fuzzing and mutants, put into its page."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from countertrain.files import write_text
from reproduction.writing import insert_tables, markdown

__all__ = ["render"]

ROOT = Path(__file__).parent.parent
RECORDS, PAGE = ROOT / "results" / "reliability", ROOT / "docs" / "reliability.md"


def render(records: Path, page: Path) -> list[str]:
    """Write the tables beside the records, and put them between the marks of the page; the names of those put in."""
    faults, fuzz, mutants, load = (_read(records / f"{name}.json") for name in ("faults", "fuzz", "mutants", "load"))
    tables = {
        "kills": _tell_kills(faults.get("random", ())),
        "moments": _tell_moments(faults),
        "limits": _tell_moments({"limits": faults.get("limits", ())}),
        "loaders": _tell_loaders(fuzz.get("loaders", {}), fuzz.get("tables")),
        "service": _tell_service(fuzz.get("service", {})),
        "mutants": _tell_mutants(mutants),
        "load": [*load.values()],
    }
    for name, rows in tables.items():
        text = markdown(pd.DataFrame(rows)) if rows else "Not recorded yet; the command above does.\n"
        write_text(records / f"{name}.md", text)
    return insert_tables(page, records)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _tell_kills(tallies: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    return [
        {
            "what was killed": tally["job"],
            "kills at random": tally["disturbed"],
            "of them inside a write": tally["in_writes"],
            "runs that ended in spite of them": tally["finished"],
            "another result, or files left behind": len(tally["wrong"]),
        }
        for tally in tallies
    ]


_PARTS = {"moments": "killed", "disk": "no space left", "removed": "folder removed", "limits": "limits"}


def _tell_moments(faults: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, object]]:
    return [
        {
            "what happens": _PARTS[part],
            "to": tally["job"],
            "moments": tally["disturbed"],
            "not as it should be": len(tally["wrong"]),
        }
        for part in _PARTS
        for tally in faults.get(part, ())
    ]


def _tell_loaders(loaders: Mapping[str, Any], tables: Mapping[str, Any] | None) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {
            "what is read": name,
            "cases": counts.get("read", 0) + counts.get("refused", 0) + len(counts["found"]),
            "read": counts.get("read", 0),
            "refused in a sentence": counts.get("refused", 0),
            "anything else": len(counts["found"]),
        }
        for name, counts in loaders.items()
    ]
    if tables is not None:
        encoded, refused, found = tables.get("encoded", 0), tables.get("refused", 0), len(tables["found"])
        rows.append(
            {
                "what is read": "ugly tables, as training reads them",
                "cases": encoded + refused + found,
                "read": encoded,
                "refused in a sentence": refused,
                "anything else": found,
            }
        )
    return rows


def _tell_service(asked: Mapping[str, Any]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for how, both in asked.items():
        outcomes, found = both["outcomes"], both["found"]
        by_hundred = {first: sum(n for one, n in outcomes.items() if one.startswith(first)) for first in "24"}
        rows.append(
            {
                "what is sent": how,
                "requests": sum(outcomes.values()),
                "answered": by_hundred["2"],
                "refused (4xx)": by_hundred["4"],
                "busy (503)": outcomes.get("503", 0),
                "no answer, or not waited for": sum(outcomes.get(one, 0) for one in ("silence", "left", "100")),
                "anything else": len(found),
            }
        )
    return rows


def _tell_mutants(record: Mapping[str, Any]) -> list[dict[str, object]]:
    titles = {"list": "of the list (tests/mutants.toml)", "random": "drawn at random"}
    return [
        {"deliberate bugs": title, "planted": len(record[part]), "noticed": sum(record[part].values())}
        for part, title in titles.items()
        if part in record
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE)
    print(", ".join(render(RECORDS, parser.parse_args().page)))  # noqa: T201
