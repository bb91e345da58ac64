"""Two sweep workers against one on the same sweep: the ratio of their wall times, processes started included.

Bar: 1.7 on two idle cores. The load average is printed beside it: on a busy machine the ratio says little.
"""

import argparse
import os
import tempfile
import time

from countertrain.runs.sweep import Processes, Store, Sweep, sweep


def seconds(spec: Sweep, workers: int) -> float:
    """Wall time of the whole sweep into a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        table = sweep(spec, Processes(workers), Store(folder))
        assert len(table) == len(spec.runs())
        return time.perf_counter() - started


def main() -> None:
    """Measure one worker, then two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    epochs = parser.parse_args().epochs
    spec = Sweep.model_validate(
        {
            "data": "moons",
            "seeds": [0, 1, 2, 3],
            "fixed": {"epochs": epochs},
            "grid": {"n_steps": [20, 30], "hidden": [[16], [32]], "tau": [0.5, 0.9], "lambda_div": [0.1, 0.5]},
        }
    )
    times = {workers: seconds(spec, workers) for workers in (1, 2)}
    for workers, wall in times.items():
        print(f"{workers} worker{'s' if workers > 1 else ' '}  {wall:7.1f} s")
    load = os.getloadavg()[0]
    print(f"ratio       {times[1] / times[2]:5.2f}  (load average {load:.1f} on {os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
