"""What the service has done so far, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

__all__ = ["Counters"]

Labels = tuple[tuple[str, str], ...]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_BOUNDS: Mapping[str, tuple[float, ...]] = {
    "countertrain_request_seconds": _SECONDS,
    "countertrain_batch_requests": _SIZES,
}
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_MEANINGS = {
    "countertrain_requests_total": ("counter", "Requests by route and status."),
    "countertrain_request_seconds": ("histogram", "Time from a request to its answer."),
    "countertrain_rows_total": ("counter", "People who were decided on or searched for."),
    "countertrain_batch_requests": ("histogram", "Requests that were answered together."),
    "countertrain_refused_total": ("counter", "Requests that were sent away, by what there was too much of."),
    "countertrain_connections_closed_total": ("counter", "Connections that the service has ended, by the reason."),
    "countertrain_reloads_total": ("counter", "Attempts to serve another model, by what came of them."),
    "countertrain_connections": ("gauge", "Connections that are open."),
    "countertrain_queue_rows": ("gauge", "People who wait for an answer."),
    "countertrain_model_info": ("gauge", "The models that are served."),
    "countertrain_drift_rows": ("gauge", "People whom drift is measured by; old ones count less and less."),
    "countertrain_drift_psi": ("gauge", "Population stability index of a column against the training rows."),
    "countertrain_decision_psi": ("gauge", "Population stability index of decisions against the training rows."),
    "countertrain_advice_total": ("counter", "People who asked for another decision, by whether a way was found."),
}


class Counters:
    """Numbers by metric and labels; all are changed from the event loop only."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, Labels]] = Counter()
        self._histograms: dict[tuple[str, Labels], list[float]] = {}

    def add(self, metric: str, amount: float = 1, **labels: object) -> None:
        """Count something."""
        self._numbers[metric, _sort(labels)] += amount  # type: ignore[assignment]  # counts of people, too

    def set(self, metric: str, value: float, **labels: object) -> None:
        """Note how much of something there is."""
        self._numbers[metric, _sort(labels)] = value  # type: ignore[assignment]

    def observe(self, metric: str, value: float, **labels: object) -> None:
        """Count an observation of a histogram: how many lie at or below each bound, and their sum."""
        bounds = _BOUNDS[metric]
        counts = self._histograms.setdefault((metric, _sort(labels)), [0.0] * (len(bounds) + 2))
        counts[bisect_left(bounds, value)] += 1
        counts[-1] += value

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.add("countertrain_requests_total", route=route, status=status)
        self.observe("countertrain_request_seconds", seconds, route=route)

    def count_batch(self, n_requests: int, n_rows: int, **labels: object) -> None:
        """Count requests that were answered by one call of the model."""
        self.add("countertrain_rows_total", n_rows, **labels)
        self.observe("countertrain_batch_requests", n_requests, **labels)

    def to_dict(self) -> dict[str, Any]:
        """Everything counted, as JSON takes it."""
        numbers = [[*key, value] for key, value in self._numbers.items()]
        return {"numbers": numbers, "histograms": [[*key, counts] for key, counts in self._histograms.items()]}

    def merge(self, other: Mapping[str, Any], *, gauges: bool = True) -> None:
        """Add what another process has counted; without `gauges`, only what never gets less."""
        for metric, labels, value in other["numbers"]:
            if gauges or _MEANINGS[metric][0] == "counter":
                self._numbers[metric, tuple(map(tuple, labels))] += value
        for metric, labels, counts in other["histograms"]:
            mine = self._histograms.setdefault((metric, tuple(map(tuple, labels))), [0.0] * len(counts))
            mine[:] = [a + b for a, b in zip(mine, counts, strict=True)]

    def render(self) -> str:
        """Everything counted, each metric under its name and meaning."""
        return "\n".join([*self._write_lines(), ""])

    def _write_lines(self) -> Iterator[str]:
        for metric, (kind, meaning) in _MEANINGS.items():
            yield f"# HELP {metric} {meaning}"
            yield f"# TYPE {metric} {kind}"
            for (name, labels), value in sorted(self._numbers.items()):
                if name == metric:
                    yield f"{metric}{_write_labels(labels)} {_write_number(value)}"
            for (name, labels), counts in sorted(self._histograms.items()):
                if name == metric:
                    yield from _write_histogram(metric, labels, counts)


def _write_histogram(metric: str, labels: Labels, counts: list[float]) -> Iterator[str]:
    *counted, total = counts
    for bound, count in zip((*map(str, _BOUNDS[metric]), "+Inf"), accumulate(counted), strict=True):
        yield f"{metric}_bucket{_write_labels((*labels, ('le', bound)))} {count:.0f}"
    yield f"{metric}_sum{_write_labels(labels)} {total:.6f}"
    yield f"{metric}_count{_write_labels(labels)} {sum(counted):.0f}"


def _sort(labels: Mapping[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items() if value is not None))


def _write_labels(labels: Iterable[tuple[str, str]]) -> str:
    """As Prometheus wants them, whatever a column may be called."""
    pairs = [f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _write_number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.6f}"
