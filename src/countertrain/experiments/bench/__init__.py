"""Speed as ratios, measured side by side in one run, one thread: `countertrain bench`."""

from countertrain.experiments.bench.measuring import FULL, QUICK, Effort, Measurement, Part, fastest
from countertrain.experiments.bench.page import machine, shown, write_page, write_results
from countertrain.experiments.bench.parts import PARTS, bench
from countertrain.experiments.bench.problems import bare_loop

__all__ = [
    "FULL",
    "PARTS",
    "QUICK",
    "Effort",
    "Measurement",
    "Part",
    "bare_loop",
    "bench",
    "fastest",
    "machine",
    "shown",
    "write_page",
    "write_results",
]
