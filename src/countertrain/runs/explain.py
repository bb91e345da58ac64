"""One decision explained: what would have to change for another one."""

from dataclasses import dataclass

import torch

from countertrain.runs.registry import build_constraints
from countertrain.runs.run import Run
from countertrain.search.generators import eccco
from countertrain.search.losses import predict
from countertrain.search.rules import SGD

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """A person's row beside its counterfactual, in the person's own units."""

    row: int
    decision: str
    target: str
    features: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    changed: tuple[bool, ...]
    immutable: tuple[bool, ...]
    probability_before: float
    probability_after: float
    valid: bool
    n_steps: int
    reason: str | None
    """Why the counterfactual is not valid or did not reach tau, if so."""


def explain(
    run: Run, row: int, target: int | str | None = None, *, tau: float = 0.95, n_steps: int = 50
) -> Explanation:
    """The counterfactual of one test row under the run's first model, searched as at test time."""
    data, model = run.data, run.models[0]
    if not 0 <= row < len(data.test):
        raise ValueError(f"row must lie in 0..{len(data.test) - 1}, the test rows of {data.name}; got {row}")
    factual = data.test.x[row : row + 1]
    with torch.no_grad():
        logits = model(factual)
    decision = int(predict(logits)[0])
    wanted = _class(run, target, decision)
    settings = run.settings
    generator = eccco(
        lambda_cost=0.0,
        lambda_egy=1.0,
        schedule=settings.energy_schedule,
        rho=settings.energy_square,
        rule=SGD(settings.step_size),
        n_steps=n_steps,
        tau=tau,
    )
    constraints = build_constraints(settings, data, test_time=True)
    found = generator(model, factual, torch.tensor([wanted]), constraints=constraints)
    with torch.no_grad():
        after = model(found.x)
    immutable = ~(constraints.may_increase | constraints.may_decrease)
    valid, mature = int(predict(after)[0]) == wanted, bool(found.mature[0])
    return Explanation(
        row=row,
        decision=str(data.classes[decision]),
        target=str(data.classes[wanted]),
        features=data.features,
        before=tuple(data.original(factual)[0].tolist()),
        after=tuple(data.original(found.x)[0].tolist()),
        changed=tuple((found.x != factual)[0].tolist()),
        immutable=tuple(immutable.tolist()),
        probability_before=float(logits.softmax(-1)[0, wanted]),
        probability_after=float(after.softmax(-1)[0, wanted]),
        valid=valid,
        n_steps=int(found.n_steps[0]),
        reason=None if mature else _reason(valid, n_steps, tau, int(immutable.sum())),
    )


def _class(run: Run, target: int | str | None, decision: int) -> int:
    """A class by number or name; the other one of two if left out."""
    classes = [str(label) for label in run.data.classes]
    if target is None:
        if len(classes) != 2:
            raise ValueError(f"target must be given where there are {len(classes)} classes: {', '.join(classes)}")
        return 1 - decision
    wanted = classes.index(target) if target in classes else int(target) if str(target).isdigit() else -1
    if not 0 <= wanted < len(classes):
        raise ValueError(
            f"target must be a class of {run.data.name}, by number 0..{len(classes) - 1} or name "
            f"({', '.join(classes[:10])}); got {target!r}"
        )
    if wanted == decision:
        raise ValueError(f"the decision is already {classes[wanted]!r}; choose another target to explain")
    return wanted


def _reason(valid: bool, n_steps: int, tau: float, n_immutable: int) -> str:
    fixed = f", {n_immutable} of its features being immutable" if n_immutable else ""
    if valid:
        return f"the decision changes, but the search stopped at {n_steps} steps short of probability {tau:g}{fixed}"
    return (
        f"no counterfactual was found within {n_steps} steps{fixed}; this is the closest attempt: allow more steps, "
        "or let more features change"
    )
