"""Whether "none exists" is true: reachml (PyPI, in an environment of its own) lists whom people can become.

`make referees` has three steps: `ask` trains a network on Give Me Some Credit as the authors of reachml cut it into
truth values (their action set `complex_nD`: age, dependents and history fixed, thermometers that go one way), and asks
it for recourse; `enumerate`, run by the Python that has reachml and nothing of ours, lists all reachable points;
`compare` asks the network about each of them.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

LOANS = [["AnyRealEstateLoans", "MultipleRealEstateLoans"], ["AnyCreditLinesAndLoans", "MultipleCreditLinesAndLoans"]]
INCOME = [f"MonthlyIncome_geq_{t}K" for t in (3, 5, 10)]
UTILIZATION = [f"CreditLineUtilization_geq_{t}" for t in (10, 20, 50, 70, 100)]
FIXED = ["Age_leq_24", "Age_bt_25_to_30", "Age_bt_30_to_59", "Age_geq_60", "NumberOfDependents_eq_0",
         "NumberOfDependents_eq_1", "NumberOfDependents_geq_2", "NumberOfDependents_geq_5",
         "HistoryOfLatePayment", "HistoryOfDelinquency"]  # fmt: skip
UP, DOWN = INCOME, ["DebtRatio_geq_1", *UTILIZATION, *LOANS[0], *LOANS[1]]
LADDERS = [INCOME, UTILIZATION, *LOANS]


def cut(raw: Any) -> Any:
    """The table of people in truth values, as published with reachml."""
    age, children, lines = raw["age"], raw["NumberOfDependents"], raw["NumberOfOpenCreditLinesAndLoans"]
    homes, late = raw["NumberRealEstateLoansOrLines"], raw.filter(regex="DaysPastDueNotWorse")
    bits = [age <= 24, (age >= 25) & (age < 30), (age >= 30) & (age <= 59), age >= 60]
    bits += [children == 0, children == 1, children >= 2, children >= 5]
    bits += [late.gt(0).any(axis=1), raw["NumberOfTimes90DaysLate"] > 0]
    bits += [raw["MonthlyIncome"] >= 1000 * t for t in (3, 5, 10)]
    bits += [raw["DebtRatio"] >= 1]
    bits += [raw["RevolvingUtilizationOfUnsecuredLines"] >= t for t in (0.1, 0.2, 0.5, 0.7, 1.0)]
    bits += [homes >= 1, homes >= 2, lines >= 1, lines >= 2]
    return raw.iloc[:, :0].assign(**dict(zip([*FIXED, *UP, *DOWN], bits, strict=True)))


def ask(source: Path, folder: Path, n: int) -> None:
    """Train on the table, and write down who is refused (each kind of person once), and what they are told."""
    import pandas as pd

    from countertrain import CounterfactualClassifier
    from countertrain.tables.schema import Boolean, Schema

    raw = pd.read_csv(source)
    raw = raw[raw["age"] >= 21]
    rows, good = cut(raw), np.where(raw["target"] == 1, "good", "bad")
    ways: dict[str, Any] = {
        **dict.fromkeys(FIXED, "none"),
        **dict.fromkeys(UP, "increase"),
        **dict.fromkeys(DOWN, "decrease"),
    }
    columns = tuple(Boolean(name=name, mutability=way) for name, way in ways.items())
    rules = [f"`{high}` == true => `{low}` == true" for ladder in LADDERS for low, high in pairwise(ladder)]
    schema = Schema(columns=columns, rules=tuple(rules))
    classifier = CounterfactualClassifier(schema, target="good", against_evidence=True, random_state=0).fit(rows, good)
    people = rows[classifier.predict(rows) == "bad"].drop_duplicates().sample(frac=1, random_state=0).head(n)
    found = classifier.explain(people.reset_index(drop=True), options=1)
    said = [one.existence for one in found]
    told = [[*one.options[0].values.values()] if one.options and one.options[0].valid else None for one in found]
    classifier.save(folder / "model", overwrite=True)
    asked = {"names": [*ways], "people": people.astype(int).to_numpy().tolist(), "said": said, "told": told}
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")


def enumerate_points(folder: Path) -> None:
    """All points that each of these people can reach, by reachml's own enumeration."""
    import pandas as pd
    from reachml import ActionSet, ReachableSetEnumerator  # type: ignore[import-not-found]  # of another environment
    from reachml.constraints import ThermometerEncoding  # type: ignore[import-not-found]

    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    x = pd.DataFrame(asked["people"], columns=asked["names"])
    every = pd.concat([x, 0 * x.head(1), 0 * x.head(1) + 1], ignore_index=True)  # so that bounds are 0 and 1
    actions = ActionSet(every)
    actions[FIXED].actionable = False
    actions[DOWN].step_direction = -1
    actions[UP].step_direction = 1
    for ladder in LADDERS:
        direction = 1 if ladder == INCOME else -1
        actions.constraints.add(constraint=ThermometerEncoding(names=ladder, step_direction=direction))
    points = []
    for row in x.to_numpy(dtype=float):
        reachable = ReachableSetEnumerator(actions, row)
        reachable.enumerate()
        points.append(np.rint(reachable.reachable_points).astype(np.int8))
    np.savez(folder / "reachable.npz", *points)


def compare(folder: Path) -> None:
    """What was said of each person beside what the network decides at every point that they can reach."""
    import pandas as pd

    from countertrain import load

    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    points = [*np.load(folder / "reachable.npz").values()]
    classifier = load(folder / "model")
    table = pd.DataFrame(np.concatenate(points).astype(bool), columns=asked["names"])
    good = np.split(classifier.predict(table) == "good", np.cumsum([len(one) for one in points])[:-1])
    counts: dict[tuple[str, str], int] = {}
    for said, any_good in zip(asked["said"], map(np.any, good), strict=True):
        key = str(said), "reachable" if any_good else "not reachable"
        counts[key] = counts.get(key, 0) + 1
    pairs = zip(asked["told"], points, strict=True)
    outside = sum(
        told is not None and not (reached == np.array(told, dtype=np.int8)).all(1).any() for told, reached in pairs
    )
    print(f"{len(points)} people, {len(table):,} reachable points")
    for (said, truth), n in sorted(counts.items()):
        print(f"we say {said!r}, reachml: {truth}: {n}")
    print(f"told rows that reachml does not reach: {outside}")
    wrong = sum(n for (said, truth), n in counts.items() if (said == "found") != (truth == "reachable"))
    raise SystemExit(1 if wrong or outside else 0)


def main() -> None:
    """One of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["ask", "enumerate", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--people", type=int, default=300)
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    if told.step == "ask":
        ask(told.source, told.folder, told.people)
    elif told.step == "enumerate":
        enumerate_points(told.folder)
    else:
        compare(told.folder)


if __name__ == "__main__":
    main()
