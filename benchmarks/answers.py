"""Whether the service tells people the same after a change: `python benchmarks/answers.py MODEL PEOPLE.csv KEPT.json`.

Asks about some people, alone and together, for one and for several options, with reasons and with columns held fixed.
The first time the answers are kept; from then on they are compared with those that were, byte by byte.
"""

import argparse
import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from countertrain.runs.folder import read_run
from countertrain.serve.building import open_desks
from countertrain.serve.desk import Desk
from countertrain.serve.questions import ExplainQuestion, Question

_TOGETHER = 7  # people in a batch of questions, at least


def ask(desk: Desk, people: list[dict[str, Any]]) -> list[str]:
    """Everything that is answered about these people."""
    decider, names = desk.decider, [*desk.decider.encoder.schema.names]
    target = decider.classes[-1] if decider.target is None else decider.target
    answers = desk.predict([Question(rows=[person]) for person in people])
    for i, person in enumerate(people):
        held = names[2:4] if i % 7 == 3 else []
        question = ExplainQuestion(
            rows=[person], target=target, options=1 + 2 * (i % 2), reasons=i % 5 == 0, immutable=held
        )
        answers += desk.explain([question])
    together = [ExplainQuestion(rows=[person], target=target, options=1 + i % 3) for i, person in enumerate(people)]
    answers += desk.explain(together)
    for first in range(0, len(people), _TOGETHER):
        answers += desk.explain(together[first : first + _TOGETHER])
    return [answer.decode() for answer in answers]


def main() -> None:
    """Keep the answers, or say how many differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("people", type=Path, help="table with the columns of the model")
    parser.add_argument("kept", type=Path, help="answers of before")
    parser.add_argument("--n", type=int, default=200, help="people to ask about")
    given = parser.parse_args()
    run = read_run(given.model)
    desks = open_desks(run.decider, None if run.twin is None else run.twin.decider)
    table = pd.read_csv(given.people)[[*run.decider.encoder.schema.names]]
    rows = json.loads(table.sample(min(given.n, len(table)), random_state=0).to_json(orient="records"))
    people = [{name: value for name, value in row.items() if value is not None} for row in rows]
    answers = {name: ask(desk, people) for name, desk in desks.items()}
    if not given.kept.exists():
        given.kept.write_text(json.dumps(answers))
        print(f"{sum(map(len, answers.values())):,} answers are kept in {given.kept}")
        return
    before, now = ([*chain.from_iterable(each.values())] for each in (json.loads(given.kept.read_text()), answers))
    n_other = sum(one != other for one, other in zip(before, now, strict=True))
    print(f"{n_other:,} of {len(now):,} answers differ")
    sys.exit(n_other > 0)


if __name__ == "__main__":
    main()
