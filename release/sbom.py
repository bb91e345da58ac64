"""`python -m release.sbom`: a bill of materials (CycloneDX) of what the Containerfile installs, in dist."""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from release.container import read_containerfile
from release.requirements import ROOT, read_project

__all__ = ["clean", "main"]

TOOL = "cyclonedx-bom==7.5.0"
_LOCAL = ("file:", "/")


def clean(bill: Any) -> Any:
    """The bill without the folders of the machine on which it was written."""
    if isinstance(bill, dict):
        return {name: clean(value) for name, value in bill.items()}
    if isinstance(bill, list):
        return [clean(value) for value in bill if not _is_local(value)]
    return bill


def _is_local(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("url", "")).startswith(_LOCAL)


def main() -> None:
    """Install both in environments of their own, and let the tool look at the other one."""
    version = read_project()["version"]
    wheel = ROOT / "dist" / f"countertrain-{version}-py3-none-any.whl"
    install = next(one.given for one in read_containerfile() if one.name == "RUN" and "pip install" in one.given)
    extras = shlex.split(install)[-1].removeprefix(".")
    with tempfile.TemporaryDirectory(prefix="sbom-") as name:
        folder = Path(name)
        pip = ["bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        for environment, what in (
            ("tool", [TOOL]),
            ("used", ["-c", str(ROOT / "constraints.txt"), f"{wheel}{extras}"]),
        ):
            subprocess.run([sys.executable, "-m", "venv", folder / environment], check=True)
            subprocess.run([folder / environment / pip[0], *pip[1:], *what], check=True)
        tool = [str(folder / "tool" / "bin" / "cyclonedx-py"), "environment", "--output-reproducible", "--of", "JSON"]
        said = subprocess.run([*tool, folder / "used"], check=True, capture_output=True, text=True).stdout
    path = ROOT / "dist" / f"countertrain-{version}.cdx.json"
    path.write_text(json.dumps(clean(json.loads(said)), indent=2) + "\n", encoding="utf-8")
    print(path.name)


if __name__ == "__main__":
    main()
