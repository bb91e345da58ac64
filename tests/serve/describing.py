"""Requests made from the service's own OpenAPI description, by schemathesis, and the answers that it promises."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import positive_data_acceptance
from schemathesis.generation import GenerationMode

__all__ = ["KINDS", "ROUTES", "ask_as_described"]

ROUTES = {
    "/predict": "POST",
    "/explain": "POST",
    "/schema": "GET",
    "/sample": "GET",
    "/metrics": "GET",
    "/healthz": "GET",
}
KINDS = [(path, GenerationMode.POSITIVE) for path in ROUTES] + [
    (path, GenerationMode.NEGATIVE) for path in ("/predict", "/explain", "/sample")
]
"""Requests that are right for each route, and wrong ones where there is something to get wrong."""


def ask_as_described(
    description: Any, path: str, mode: GenerationMode, headers: dict[str, str], n: int = 8, **more: Any
) -> Counter[int]:
    """How often each status answered n such requests; an answer that the description does not promise is an error."""
    operation, statuses = description[path][ROUTES[path]], Counter[int]()
    # Two ends of a range may be fine and yet have nothing in common with the column.
    refused_anyway = [positive_data_acceptance] if path == "/explain" else []

    # Without shrinking: where a busy machine is too slow for one request, a hundred more would be, too.
    @settings(
        max_examples=n,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
        **more,
    )
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        statuses[case.call_and_validate(headers=headers, excluded_checks=refused_anyway, timeout=60).status_code] += 1

    holds()
    return statuses
