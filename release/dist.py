"""`python -m release.dist`: the sdist and the wheel, which is built from the sdist alone, in dist."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from release.requirements import ROOT

__all__ = ["SHIPPED", "build", "main"]

SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "constraints.txt")
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def build(out: Path) -> None:
    """Build both without touching the clone, and without fetching anything."""
    with tempfile.TemporaryDirectory(prefix="dist-") as name:
        clone = Path(name) / "clone"
        shutil.copytree(ROOT / "src", clone / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for shipped in SHIPPED:
            shutil.copy(ROOT / shipped, clone)
        _call_backend("build_sdist", clone, out)
        with tarfile.open(max(out.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)) as sdist:
            sdist.extractall(name, filter="data")
        _call_backend("build_wheel", next(Path(name).glob("countertrain-*")), out)


def _call_backend(step: str, folder: Path, out: Path) -> None:
    command = [sys.executable, "-c", _BUILD, step, str(out.resolve())]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{step} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Build both anew."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    build(out)
    print(*sorted(path.name for path in out.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
