"""`python -m release.trial`: dist's wheel in a new virtual environment, outside of the clone, as a user would have it.

First with the base libraries alone, where every command that needs an extra must say so; then with what the
Containerfile installs, its commands step by step, as a user without rights who can write to no folder but one.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from release.container import read_containerfile, read_words
from release.requirements import ROOT, read_project

__all__ = ["NEEDS", "TABLE", "main"]

TABLE = "income,job,decision\n" + "".join(
    f"{20 + i % 40},{('none', 'some')[i % 3 > 0]},{('no', 'yes')[i % 40 + 5 * (i % 3 > 0) > 20]}\n" for i in range(240)
)
"""240 people, of whom an income of about 40 and a job make the decision."""
USED = (
    "--version",
    "list data",
    "check loans.csv --label decision",
    "train loans.csv --label decision --target yes --epochs 3 --out model",
    "explain model --rows people.csv",
    "letters model --rows people.csv --out letters --format html,text",
    "report model --examples 1",
)
"""What runs with the base libraries."""
NEEDS = {
    "serve model": "serving needs FastAPI; install it with: pip install 'countertrain[serve]'",
    "tune loans.csv --label decision --out tuned": "tuning needs Optuna; install it with: "
    "pip install 'countertrain[tune]'",
    "export model": "export needs onnx and onnxscript; install them with: pip install 'countertrain[onnx]'",
    "sweep grid.toml --backend ray": "--backend ray needs Ray; install it with: pip install 'countertrain[ray]'",
    "check loans.parquet --label decision": "loans.parquet cannot be read as a Parquet file: that needs pyarrow; "
    "pip install 'countertrain[parquet]', or bring a CSV file",
    "train loans.xlsx --label decision": "loans.xlsx cannot be read as an Excel file: that needs openpyxl; "
    "pip install 'countertrain[excel]', or bring a CSV file",
    "train loans.csv --label decision --track tensorboard": "there is no tracker to show the epochs to; "
    "install it with: pip install 'countertrain[track]'",
}
"""What every command that needs an extra says without it."""
_NOBODY = 10001  # the user of the Containerfile


def main() -> None:
    """Try it all, and end with an error at the first thing that does not work."""
    wheel = ROOT / "dist" / f"countertrain-{read_project()['version']}-py3-none-any.whl"
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        prepare(folder)
        _say("a new virtual environment, with the base libraries alone")
        _call(folder, [sys.executable, "-m", "venv", "venv"])
        install = "venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint"
        _call(folder, [*install.split(), str(ROOT / "constraints.txt"), str(wheel)])
        _call(folder, ["venv/bin/python", "-m", "pip", "check"])
        for command in USED:
            _call(folder, ["venv/bin/countertrain", *command.split()])
        for command, sentence in NEEDS.items():
            _check_refusal(folder, command, sentence)
        run_container(folder)
    _say("all of it works")


def prepare(folder: Path) -> None:
    """The files that the commands are given."""
    for name in ("loans.csv", "loans.parquet", "loans.xlsx"):
        (folder / name).write_text(TABLE, encoding="utf-8")
    (folder / "people.csv").write_text("".join(TABLE.splitlines(keepends=True)[:4]), encoding="utf-8")
    (folder / "grid.toml").write_text('data = "moons"\n[grid]\ntau = [0.5, 0.9]\n', encoding="utf-8")


def run_container(folder: Path) -> None:
    """What the Containerfile says, with its folders under this one, as a user who may write to /tmp only."""
    (folder / "current").symlink_to("model")
    if os.getuid() == 0:
        _call(folder, ["chgrp", "-R", str(_NOBODY), "model"])
        _call(folder, ["chmod", "-R", "g+rX,o=", "model"])
    image = {"/opt/countertrain": str(folder / "venv"), "/models": str(folder), "/src": str(ROOT)}
    told = {one.name: _move(one.given, image) for one in read_containerfile()}
    for one in read_containerfile():
        if one.name == "RUN" and "pip install" in one.given:
            command = _move(one.given, image).replace("${TORCH_INDEX}", "https://download.pytorch.org/whl/cpu")
            _call(ROOT, [*_without_index(shlex.split(command)), "--quiet"])
    environment = dict(word.split("=", 1) for word in shlex.split(told["ENV"])) | {"COUNTERTRAIN_TOKEN": "x" * 32}
    port = _find_port()
    serve = [*read_words(told["ENTRYPOINT"]), *read_words(told["CMD"]), "--port", port]
    with _serving(serve, environment):
        _wait_until_healthy(read_words(told["HEALTHCHECK"].replace(":8000", f":{port}")), environment)
        address, token = f"http://127.0.0.1:{port}", environment["COUNTERTRAIN_TOKEN"]
        _check_status(f"{address}/", 200)
        _check_status(f"{address}/schema", 401)
        _check_status(f"{address}/schema", 200, token)


def _move(given: str, image: Mapping[str, str]) -> str:
    """What an instruction says, with folders of the image replaced by those of the trial."""
    for path, place in image.items():
        given = re.sub(rf"(?<![\w.]){re.escape(path)}\b", place, given)
    return given


def _without_index(words: list[str]) -> list[str]:
    """The same installation from wherever this machine installs from."""
    i = words.index("--extra-index-url")
    return words[:i] + words[i + 2 :]


@contextmanager
def _serving(words: list[str], environment: Mapping[str, str]) -> Iterator[None]:
    program = Path(environment["PATH"].split(":")[0]) / words[0]
    rights = _find_rights(program)
    _say(f"{shlex.join(words)}, as user {rights.get('user', os.getuid())}")
    with subprocess.Popen([program, *words[1:]], cwd="/", env=environment, **rights) as service:
        try:
            yield
            assert service.poll() is None, "the service has ended"
        finally:
            service.terminate()
            ended = service.wait(15)
        assert ended in (0, -15, 143), f"the service ended with {ended} when it was told to stop"


def _find_rights(program: Path) -> dict[str, Any]:
    """How to start a program as the user of the Containerfile; nothing where that is not allowed here."""
    rights: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    try:
        subprocess.run([program, "--version"], cwd="/", capture_output=True, check=True, **rights)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return rights


def _wait_until_healthy(words: list[str], environment: Mapping[str, str]) -> None:
    program = Path(environment["PATH"].split(":")[0]) / words[0]
    for _ in range(120):
        if subprocess.run([program, *words[1:]], env=environment, capture_output=True).returncode == 0:
            return
        time.sleep(1)
    raise AssertionError("the health check of the Containerfile does not pass within two minutes")


def _find_port() -> str:
    """A port that is free, since this machine may serve something at the port of the container."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def _check_status(address: str, expected: int, token: str | None = None) -> None:
    request = urllib.request.Request(address)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    assert status == expected, f"GET {address} answers {status}, not {expected}"


def _check_refusal(folder: Path, command: str, sentence: str) -> None:
    done = subprocess.run(
        ["venv/bin/countertrain", *command.split()], cwd=folder, env=_outside(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, f"countertrain: {sentence}\n"), f"{command}: {done.stderr}"


def _call(folder: Path, words: list[str]) -> None:
    _say(shlex.join(words))
    done = subprocess.run(words, cwd=folder, env=_outside(), capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)} ends with {done.returncode}:\n{done.stdout}{done.stderr}"


def _outside() -> dict[str, str]:
    """The environment without anything that leads to the clone."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
