"""Speed as ratios, measured side by side in one run, one thread: `make bench`."""

from benchmarks.measuring import FULL, QUICK, Budget, Measurement, Part, fastest
from benchmarks.page import format_cells, machine, write_page, write_results
from benchmarks.parts import PARTS, bench
from benchmarks.problems import bare_loop

__all__ = [
    "FULL",
    "PARTS",
    "QUICK",
    "Budget",
    "Measurement",
    "Part",
    "bare_loop",
    "bench",
    "fastest",
    "format_cells",
    "machine",
    "write_page",
    "write_results",
]
