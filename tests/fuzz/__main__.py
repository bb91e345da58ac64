"""`python -m tests.fuzz`, from a clone: every loader for some minutes, and thousands of ugly tables."""

import argparse
import json
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.damaging import damaged
from tests.fuzz.loaders import LOADERS, Loader, try_loader
from tests.fuzz.tables import try_table

_ROUND = 100  # cases between two looks at the clock, or two notes


def main() -> None:
    """Fuzz, and write down how much of it there was; what was found is kept as a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all loaders together")
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--resume", action="store_true", help="go on with the tables behind those of the record")
    parser.add_argument("--out", type=Path, default=Path("results/reliability/fuzz.json"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    record = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        if asked.minutes:
            each = 60 * asked.minutes / len(LOADERS)
            record["loaders"] = {name: _fuzz(name, loader, each, folder) for name, loader in LOADERS.items()}
            _write(asked.out, record)
        if asked.tables:
            so_far = record.get("tables", {}) if asked.resume else {}
            for tally in _try_tables(asked.tables, so_far, folder):
                record["tables"] = tally
                _write(asked.out, record)


def _write(out: Path, record: dict[str, object]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")


def _fuzz(name: str, loader: Loader, seconds: float, folder: Path) -> dict[str, object]:
    """Damage what a loader can read until the time is up; what it stumbles over is kept."""
    ends, counts, found = time.monotonic() + seconds, Counter[str](), dict[str, bytes]()

    def look(content: bytes) -> None:
        try:
            refusal = try_loader(loader, content, folder)
            counts["read" if refusal is None else "refused"] += 1
        except Exception as error:  # whatever it is, it is what we look for
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.setdefault(f"{type(error).__name__} in {where.name}", content)

    round_ = 0
    while time.monotonic() < ends:
        look_at = given(st.just(round_), damaged(loader.example))(lambda _, content: look(content))
        settings(
            max_examples=_ROUND, deadline=None, database=None, derandomize=False, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(look_at)()  # fmt: skip
        round_ += 1
    for i, (what, content) in enumerate(found.items()):
        kept = Path(__file__).parent / "found" / name.replace(" ", "-") / f"{i}-{what.replace(' ', '-').strip('<>')}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(content)
        print(f"{name}: {what}: {content[:200]!r}", flush=True)  # noqa: T201
    return {**counts, "found": list(found)}


def _try_tables(n: int, so_far: dict[str, Any], folder: Path) -> Iterator[dict[str, object]]:
    """Ugly tables, one after the other, up to n of them; what came of them, now and then."""
    found: list[str] = list(so_far.get("found", ()))
    counts = Counter[str]({end: so_far.get(end, 0) for end in ("encoded", "refused")})
    for seed in range(counts.total() + len(found), n):
        try:
            counts["encoded" if try_table(seed, folder) is None else "refused"] += 1
        except Exception as error:  # an assertion, too
            found.append(f"seed {seed}: {type(error).__name__}: {error}"[:300])
            print(found[-1], flush=True)  # noqa: T201
        if (seed + 1) % _ROUND == 0 or seed + 1 == n:
            yield {**counts, "found": found}


if __name__ == "__main__":
    main()
