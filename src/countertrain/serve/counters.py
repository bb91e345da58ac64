"""What the service has done so far, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

__all__ = ["Counters"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass
class Histogram:
    """How many observations lie at or below each bound."""

    bounds: Sequence[float]
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, label: str = "") -> Iterator[str]:
        """As Prometheus wants it: counts up to each bound, their sum and number."""
        comma = f"{label}," if label else ""
        for bound, count in zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{comma}le="{bound}"}} {count}'
        braces = f"{{{label}}}" if label else ""
        yield f"{name}_sum{braces} {self.total:.6f}"
        yield f"{name}_count{braces} {sum(self.counts)}"


class Counters:
    """Counts of requests, of people and of searches; all are changed from the event loop only."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._rows: Counter[str] = Counter()
        self._batches: dict[str, Histogram] = {}

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[route, status] += 1
        self._seconds.setdefault(route, Histogram(_SECONDS)).add(seconds)

    def count_batch(self, work: str, n_requests: int, n_rows: int) -> None:
        """Count requests that were answered by one call of the model."""
        self._rows[work] += n_rows
        self._batches.setdefault(work, Histogram(_SIZES)).add(n_requests)

    def render(self) -> str:
        """Everything counted, each metric under its name and meaning."""
        return "\n".join([*self._write_lines(), ""])

    def _write_lines(self) -> Iterator[str]:
        yield from _write_head("countertrain_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self._requests.items()):
            yield f'countertrain_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _write_head("countertrain_request_seconds", "histogram", "Time from a request to its answer.")
        for route, seconds in sorted(self._seconds.items()):
            yield from seconds.lines("countertrain_request_seconds", f'route="{route}"')
        yield from _write_head("countertrain_rows_total", "counter", "People who were decided on or searched for.")
        for work, count in sorted(self._rows.items()):
            yield f'countertrain_rows_total{{work="{work}"}} {count}'
        yield from _write_head("countertrain_batch_requests", "histogram", "Requests that were answered together.")
        for work, sizes in sorted(self._batches.items()):
            yield from sizes.lines("countertrain_batch_requests", f'work="{work}"')


def _write_head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
