"""What a Containerfile says, instruction by instruction, and what is wrong with it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.requirements import ROOT

__all__ = ["FILE", "Instruction", "find_mistakes", "read_containerfile", "read_words"]

FILE = ROOT / "deploy" / "Containerfile"
_SECRET = re.compile(r"token|secret|password|key", re.IGNORECASE)


@dataclass(frozen=True)
class Instruction:
    """One instruction, such as RUN, and what it is given."""

    name: str
    given: str


def read_containerfile(path: Path = FILE) -> list[Instruction]:
    """The instructions of a file, with continued lines joined and comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Instruction(*re.split(r"\s+", line.strip(), maxsplit=1)) for line in joined.splitlines() if line.strip()]


def read_words(given: str) -> list[str]:
    """The words of an instruction in its exec form, a JSON list after its options."""
    words: Any = json.loads(given[given.index("[") :])
    return list(map(str, words))


def find_mistakes(instructions: list[Instruction], context: Path = ROOT) -> list[str]:
    """What hadolint would say of it and more, a sentence each."""
    last = max(i for i, one in enumerate(instructions) if one.name == "FROM")
    final = {one.name: one.given for one in instructions[last:]}
    mistakes = [f"the last stage has no {name}" for name in ("USER", "HEALTHCHECK", "ENTRYPOINT") if name not in final]
    if final.get("USER", "0").split(":")[0] in ("0", "root"):
        mistakes.append("the last stage runs as root; name a numeric USER")
    for name, given in final.items():
        if name in ("CMD", "ENTRYPOINT", "HEALTHCHECK") and "[" not in given:
            mistakes.append(f"{name} is in shell form, which does not pass signals on; write a JSON list")
    for one in instructions:
        mistakes += _find_mistakes_of(one, context)
    return mistakes


def _find_mistakes_of(one: Instruction, context: Path) -> list[str]:
    if one.name == "ADD":
        return ["ADD fetches and unpacks; use COPY"]
    if one.name in ("ENV", "ARG") and _SECRET.search(one.given):
        return [f"{one.name} {one.given} would keep a secret in the image"]
    if one.name == "ARG" and one.given.startswith("PYTHON=") and not re.search(r":\d+\.\d+-|@sha256:", one.given):
        return [f"{one.given} is not pinned to a version"]
    if one.name == "RUN" and "pip install" in one.given and "--constraint" not in one.given:
        return [f"RUN {one.given} installs versions that nobody tested; add --constraint"]
    if one.name == "COPY" and not one.given.startswith("--from"):
        return [
            f"COPY names {path}, which is not there" for path in one.given.split()[:-1] if not (context / path).exists()
        ]
    return []
