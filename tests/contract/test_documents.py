"""What the documents show is run as written, and prints what they say that it prints.

In a document, `python` and `sh` blocks are run one after another in one folder, a block with a title is a file, and a
`text` block is what the block before it prints; what cannot be run in a test is a `console` block. Numbers may differ
from machine to machine. With COUNTERTRAIN_WRITE_DOCUMENTS=1 the `text` blocks are written anew.
"""

import difflib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from countertrain import cli
from countertrain.cli.app import _spread

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("COUNTERTRAIN_DATA", ROOT.parent / "shared" / "data"))
WHOLE = ("docs/quickstart.md", "docs/concepts.md", "docs/how-to.md")
PYTHON_ONLY = ("README.md", "CONTRIBUTING.md", "docs/generators.md")  # their commands take minutes
TUTORIAL, TABLE = "docs/tutorial-credit.md", "credit_default_balanced.csv.gz"
BLOCK = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
PORT = "8000"
ALIKE = 0.85  # of the words that are printed, at least


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    kind: str
    title: str | None
    text: str
    start: int
    """Where its text starts in the document, and where it ends."""
    end: int

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a shell block, or of one with prompts, in words."""
        lines = self.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        return [command for command in words if command]


def blocks(name: str) -> list[Block]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [Block(b["kind"], b["title"], b["text"], b.start("text"), b.end("text")) for b in BLOCK.finditer(text)]


@dataclass
class Runner:
    """Runs the blocks of one document in an empty folder."""

    said: Callable[[], str]
    """What has been printed since it was last asked."""
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "example"})
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: str = PORT

    def run(self, block: Block) -> str | None:
        """What a block prints; None where it is not run."""
        self.said()
        if block.kind == "python":
            exec(compile(block.text, "example", "exec"), self.names)
        elif block.kind == "sh":
            for command in block.commands:
                if not self.call([word.replace(f":{PORT}", f":{self.port}") for word in command]):
                    return None
        elif block.title is not None:
            Path(block.title).write_text(block.text, encoding="utf-8")
        else:
            return None
        return self.said()

    def call(self, command: list[str]) -> bool:
        """Run a command, whether or not it is to be had here."""
        if command[:2] == ["countertrain", "serve"]:
            self.serve(command[1:])
        elif command[0] == "countertrain":
            with pytest.raises(SystemExit) as end:
                cli.main(command[1:])
            assert not end.value.code, f"{shlex.join(command)} ends with {end.value.code}"
        elif shutil.which(command[0]):
            sys.stdout.write(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        else:
            return False
        return True

    def serve(self, args: list[str]) -> None:
        """Start a service on a free port, and wait until it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        command = [sys.executable, "-m", "countertrain", *args, "--port", self.port]
        self.services.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for _ in range(600):
            assert self.services[-1].poll() is None, f"{shlex.join(args)} has ended"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        pytest.fail(f"{shlex.join(args)} does not answer")


@pytest.fixture
def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    runner = Runner(lambda: capsys.readouterr().out)
    yield runner
    for service in runner.services:
        service.terminate()
        service.wait(10)


def check(name: str, runner: Runner, kinds: tuple[str, ...] = ("python", "sh", "file")) -> None:
    """Run a document, and compare what it shows with what is printed."""
    document, printed = blocks(name), []
    said: str | None = None
    for block in document:
        if block.kind == "text" and block.title is None:
            if said is not None:
                assert said, f"{name} shows what a block prints that prints nothing:\n{block.text}"
                printed.append((block, said))
            said = None
        elif block.kind in kinds or (block.title is not None and "file" in kinds):
            said = runner.run(block)
    if os.environ.get("COUNTERTRAIN_WRITE_DOCUMENTS"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for block, said in reversed(printed):
            text = text[: block.start] + tidy(said) + text[block.end :]
        (ROOT / name).write_text(text, encoding="utf-8")
        return
    for block, said in printed:
        alike = difflib.SequenceMatcher(None, words(block.text), words(said), autojunk=False).ratio()
        assert alike >= ALIKE, f"{name} shows\n{block.text}\nbut what is printed is\n{tidy(said)}"


def tidy(said: str) -> str:
    return "\n".join(line.rstrip() for line in said.strip("\n").splitlines()) + "\n"


def words(text: str) -> list[str]:
    """Words without their numbers."""
    return re.sub(r"\d[\d.,]*", "0", text).split()


@pytest.mark.parametrize("name", WHOLE)
def test_a_document_runs_as_written_and_prints_what_it_shows(name: str, runner: Runner) -> None:
    check(name, runner)


@pytest.mark.parametrize("name", PYTHON_ONLY)
def test_the_python_of_a_document_runs_as_written(name: str, runner: Runner) -> None:
    check(name, runner, ("python",))


@pytest.mark.skipif(not (DATA / TABLE).is_file(), reason=f"{TABLE} is not in {DATA}; set COUNTERTRAIN_DATA")
def test_the_tutorial_on_credit_default_runs_as_written(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(DATA))
    check(TUTORIAL, runner)


@pytest.mark.parametrize("name", [*PYTHON_ONLY, *WHOLE, TUTORIAL, "docs/deploy.md"])
def test_every_command_that_a_document_shows_can_be_understood(name: str) -> None:
    group: Any = typer.main.get_command(cli.app)
    for block in blocks(name):
        for command in block.commands if block.kind in ("sh", "console") else []:
            if command[0] == "countertrain":
                name, *rest = _spread(command[1:])
                group.commands[name].make_context(name, rest)  # refuses what it does not know


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_every_command_that_a_document_names_exists(path: Path) -> None:
    group: Any = typer.main.get_command(cli.app)
    named = re.findall(r"(?:`|^ *(?:\$ )?)countertrain ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= set(group.commands)


def test_the_readme_shows_a_runnable_example_of_ten_lines_before_its_fifteenth_line_and_so_does_the_site() -> None:
    first, printed = (block.text for block in blocks("README.md")[:2])
    assert len(first.strip().splitlines()) <= 10
    assert [block.text for block in blocks("docs/index.md")] == [first, printed]
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines.index("```python") < 15
