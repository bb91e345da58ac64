"""`python -m release.pins`: constraints.txt pins all that is needed, nothing else, and what is installed here."""

import sys

from release.requirements import find_needed, read_pins

__all__ = ["find_mistakes", "main"]

UNPINNED = {"pip", "setuptools", "wheel"}  # what a virtual environment brings along, or the build fetches


def find_mistakes() -> list[str]:
    """What is wrong with the pins, a sentence each."""
    pins, needed = read_pins(), find_needed(["dev"])
    mistakes = [f"{name} is needed, but constraints.txt does not pin it" for name in needed.keys() - pins - UNPINNED]
    mistakes += [f"constraints.txt pins {name}, which nothing needs; take it out" for name in pins.keys() - needed]
    for name in needed.keys() & pins:
        installed = needed[name]
        if installed is None:
            mistakes.append(f"{name} is needed, but not installed; run `make check` first")
        elif installed.version.split("+")[0] != pins[name]:
            mistakes.append(f"constraints.txt pins {name} {pins[name]}, but {installed.version} is installed")
    return sorted(mistakes)


def main() -> None:
    """Say what is wrong, and end with 1 if anything is."""
    mistakes = find_mistakes()
    print(*mistakes or ["constraints.txt pins all that is needed, and nothing else"], sep="\n")
    sys.exit(bool(mistakes))


if __name__ == "__main__":
    main()
