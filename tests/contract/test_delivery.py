"""What goes out: a wheel that runs outside of a clone, a Containerfile, pins, licences, a version that is said once."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from release import licences, pins
from release.container import Instruction, find_mistakes, read_containerfile
from release.dist import SHIPPED, build
from release.requirements import find_needed
from release.sbom import clean
from release.trial import NEEDS, prepare

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
EXTRAS = ("fastapi", "uvicorn", "optuna", "onnx", "onnxscript", "ray", "pyarrow", "pyarrow.parquet", "openpyxl")
TRACKERS = ("torch.utils.tensorboard", "tensorboardX")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    build(out)
    return out


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(dist / f"countertrain-{VERSION}-py3-none-any.whl") as wheel:
        wheel.extractall(folder)
    return folder


def files_of(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(unpacked: Path) -> None:
    source = files_of(ROOT / "src" / "countertrain")
    assert {"py.typed", "serve/page/index.html", "report/report.html", "recourse/letters/letter.html.j2"} <= source
    assert files_of(unpacked / "countertrain") == source
    assert {path.name for path in unpacked.iterdir()} == {"countertrain", f"countertrain-{VERSION}.dist-info"}


def test_the_sdist_has_what_a_build_and_a_reader_need(dist: Path) -> None:
    with tarfile.open(dist / f"countertrain-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*SHIPPED, "src/countertrain/serve/page/page.js"} <= names


def call_outside(program: str, unpacked: Path, folder: Path) -> str:
    """What a program prints that finds the package in an unpacked wheel, in a folder outside of the clone."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(unpacked)!r})\n{program}"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "COUNTERTRAIN_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_runs_outside_of_a_clone_and_says_which_libraries_it_lacks(unpacked: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    program = f"""
import contextlib, io, pathlib
import countertrain
from countertrain.cli import main
assert pathlib.Path(countertrain.__file__).is_relative_to({str(unpacked)!r}), countertrain.__file__
def call(command):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(command.split())
        except SystemExit as end:
            return end.code, said.getvalue()
assert call("--version")[0] == 0
assert call("train loans.csv --label decision --target yes --epochs 1 --out model")[0] == 0
assert call("letters model --rows people.csv --out letters --everyone")[0] == 0
sys.modules |= dict.fromkeys({EXTRAS + TRACKERS})
for command, sentence in {NEEDS}.items():
    assert call(command) == (2, "countertrain: " + sentence + chr(10)), (command, call(command))
"""
    assert call_outside(program, unpacked, tmp_path).startswith(f"countertrain {VERSION}\n")
    assert list((tmp_path / "letters").glob("*.html"))
    assert not (tmp_path / "tuned").exists()


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert releases[0] == VERSION
    assert f"countertrain:{VERSION}" in (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert f"countertrain:{VERSION}" in (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")


def test_the_pins_are_all_that_is_needed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pins.find_mistakes() == []
    right = pins.read_pins()
    wrong = {name: pinned for name, pinned in right.items() if name != "captum"} | {"torch": "1.0", "left-pad": "1.3"}
    monkeypatch.setattr(pins, "read_pins", lambda: wrong)
    installed = find_needed()["torch"]
    assert installed is not None
    assert pins.find_mistakes() == [
        "captum is needed, but constraints.txt does not pin it",
        "constraints.txt pins left-pad, which nothing needs; take it out",
        f"constraints.txt pins torch 1.0, but {installed.version} is installed",
    ]


def test_the_page_of_licences_is_what_the_libraries_say() -> None:
    assert (ROOT / "docs" / "licences.md").read_text(encoding="utf-8") == licences.render()
    assert len(find_needed()) > 20


def test_the_containerfile_keeps_to_the_rules_and_a_careless_one_does_not() -> None:
    assert find_mistakes(read_containerfile()) == []
    careless = [
        Instruction("ARG", "PYTHON=python:latest"),
        Instruction("FROM", "${PYTHON}"),
        Instruction("ENV", "API_TOKEN=abc"),
        Instruction("COPY", "nowhere ."),
        Instruction("ADD", "https://example.org/a.tar ."),
        Instruction("RUN", "pip install countertrain"),
        Instruction("USER", "root"),
        Instruction("ENTRYPOINT", "countertrain serve"),
    ]
    assert find_mistakes(careless) == [
        "the last stage has no HEALTHCHECK",
        "the last stage runs as root; name a numeric USER",
        "ENTRYPOINT is in shell form, which does not pass signals on; write a JSON list",
        "PYTHON=python:latest is not pinned to a version",
        "ENV API_TOKEN=abc would keep a secret in the image",
        "COPY names nowhere, which is not there",
        "ADD fetches and unpacks; use COPY",
        "RUN pip install countertrain installs versions that nobody tested; add --constraint",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit_and_finds_it_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "countertrain.service"
    text = (ROOT / "deploy" / unit.name).read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/countertrain/bin/countertrain", sys.executable), encoding="utf-8")
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    exposed = subprocess.run(command, capture_output=True, text=True)
    assert exposed.returncode == 0, exposed.stdout


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_understands_the_proxy(tmp_path: Path) -> None:
    site = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    site = re.sub(r"^ +ssl_certificate.*\n", "", site, flags=re.MULTILINE).replace("443 ssl", "443")
    (tmp_path / "site.conf").write_text(site, encoding="utf-8")
    whole = (
        f"pid {tmp_path}/pid;\nerror_log {tmp_path}/log;\nevents {{}}\nhttp {{ access_log off; include site.conf; }}\n"
    )
    (tmp_path / "nginx.conf").write_text(whole, encoding="utf-8")
    tested = subprocess.run(["nginx", "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr


def test_a_bill_of_materials_names_no_folder_of_the_machine() -> None:
    website = {"type": "website", "url": "https://example.org"}
    here = {"type": "distribution", "url": "file:///home/somebody/dist/a.whl"}
    bill = {"components": [{"name": "a", "externalReferences": [here, website]}]}
    assert clean(bill) == {"components": [{"name": "a", "externalReferences": [website]}]}
