"""What the documents show is run as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def examples() -> list[tuple[str, str]]:
    found = []
    for name in ("README.md", "CONTRIBUTING.md"):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [(f"{name} {i}", block) for i, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_an_example_of_the_documents_runs_as_written(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "example", "exec"), {"__name__": "example"})
    if "print(" in code:
        assert "tensor" in capsys.readouterr().out


def test_the_readme_shows_a_runnable_example_before_its_fifteenth_line() -> None:
    assert len(examples()) >= 3
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines.index("```python") < 15
