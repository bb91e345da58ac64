"""Where the questions of many people are answered by one model at once; everything here may run in a worker thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise, zip_longest
from typing import Self

import pandas as pd
import torch
from pydantic import TypeAdapter
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import Explanation
from countertrain.recourse.reach import Reach
from countertrain.recourse.search import RecourseSearch, Request
from countertrain.serve.answers import Chance, Decision, ExplainAnswer, Label, PredictAnswer, Sample, SampleRow
from countertrain.serve.questions import ExplainQuestion, Question
from countertrain.tables.encoder import Encoder
from countertrain.tables.labels import find_targets
from countertrain.tables.schema import Schema

__all__ = ["Desk"]

_DECISIONS = TypeAdapter(PredictAnswer).dump_json
_EXPLANATIONS = TypeAdapter(ExplainAnswer).dump_json


@dataclass(frozen=True, eq=False)
class Desk:
    """One decider with everything that it takes to answer, prepared once."""

    search: RecourseSearch
    constraints: Constraints
    alone: Mapping[str, Encoder]
    """An encoder per column, with which the limits of one person are cheap to work out."""
    samples: Mapping[Label, Sequence[SampleRow]]
    """Real people of each class, in random order; none where none may be shown."""
    tau: float | None
    n_steps: int

    @classmethod
    def of(cls, decider: Decider, *, tau: float | None, n_steps: int, sample: int) -> Self:
        """The desk of a decider, at which up to `sample` real people per class may be looked at."""
        encoder, search = decider.encoder, RecourseSearch.of(decider)
        search = replace(search, examples=search.examples.astype(object))  # every answer needs them so
        alone = {
            column.name: Encoder(Schema(columns=(column,)), (scale,), (dtype,))
            for column, scale, dtype in zip(encoder.schema.columns, encoder.scales, encoder.dtypes, strict=True)
        }
        return cls(search, encoder.constraints(), alone, _take_samples(search, sample), tau, n_steps)

    @property
    def decider(self) -> Decider:
        """Whoever decides here."""
        return self.search.decider

    def show_people(self, label: Label | None, n: int) -> Sample:
        """Some real people of a class, or of all classes in turn."""
        if label is not None:
            return Sample([*self.samples[label][:n]])
        in_turn = (person for people in zip_longest(*self.samples.values()) for person in people if person)
        return Sample([*islice(in_turn, n)])

    def predict(self, questions: Sequence[Question]) -> list[bytes]:
        """The decisions on the people of each question."""
        labels, x = self.decider.classes, self._encode(self._to_frame(questions))
        probability = self.decider.compute_probabilities(x).tolist()  # (n, K)
        decisions = [
            Decision(labels[row.index(max(row))], [Chance(*pair) for pair in zip(labels, row, strict=True)])
            for row in probability
        ]
        return [_DECISIONS(PredictAnswer(decisions[part])) for part in _split_rows(questions)]

    def explain(self, questions: Sequence[ExplainQuestion]) -> list[bytes]:
        """What the people of each question could change; all are searched together, each within their own limits."""
        frame = self._to_frame(questions)
        origin = self._encode(frame)
        reach, target = self.search.find_reach(self.constraints, origin), self.decider.decide(origin)
        for question, part in zip(questions, _split_rows(questions), strict=True):
            self._narrow(reach, question, part)
            target[part] = torch.from_numpy(find_targets(question.target, self.decider.classes, target[part].numpy()))
        options = [question.options for question in questions for _ in question.rows]
        found = self.search([Request(frame, target, reach)], options=options, tau=self.tau, n_steps=self.n_steps)[0]
        return [
            _EXPLANATIONS(ExplainAnswer([self._finish(found[i], i - part.start) for i in range(part.start, part.stop)]))
            for part in _split_rows(questions)
        ]

    def _narrow(self, reach: Reach, question: ExplainQuestion, part: slice) -> None:
        """Narrow the reach of the people of a question to what they can change themselves."""
        encoder = self.decider.encoder
        for name in question.ranges.keys() | set(question.immutable):
            features = encoder.slices[encoder.schema.names.index(name)]
            constraints = self.alone[name].constraints(
                immutable=[name] if name in question.immutable else [],
                ranges={name: question.ranges[name]} if name in question.ranges else None,
            )
            mine = Reach.of(constraints, reach.origin[part, features])
            reach.low[part, features], reach.high[part, features] = mine.low, mine.high

    def _finish(self, explanation: Explanation, row: int) -> Explanation:
        """An explanation with the number of its row in the question, and no real people where none may be shown."""
        if any(self.samples.values()):
            return replace(explanation, row=row)
        return replace(explanation, row=row, options=tuple(replace(o, nearest=()) for o in explanation.options))

    def _to_frame(self, questions: Sequence[Question]) -> pd.DataFrame:
        """The people of all questions as one table; as objects, so that nobody's values change with their company."""
        people = [person for question in questions for person in question.rows]
        columns = {name: [person.get(name) for person in people] for name in self.decider.encoder.schema.names}
        return pd.DataFrame(columns, dtype=object)

    def _encode(self, frame: pd.DataFrame) -> Tensor:
        return torch.from_numpy(self.decider.encoder.encode(frame))  # (n, D) float64


def _take_samples(search: RecourseSearch, n: int) -> dict[Label, list[SampleRow]]:
    """Up to n rows of the reference per class, in the user's units."""
    samples: dict[Label, list[SampleRow]] = {}
    for k, label in enumerate(search.decider.classes):
        places = [] if search.reference is None else search.reference.of_class(k)[:n].tolist()
        rows = search.examples.iloc[places].astype(object)
        values = rows.where(rows.notna(), None).to_numpy().tolist()
        samples[label] = [SampleRow(label, dict(zip(rows.columns, row, strict=True))) for row in values]
    return samples


def _split_rows(questions: Sequence[Question]) -> list[slice]:
    """The rows of each question among all."""
    ends = accumulate((len(question.rows) for question in questions), initial=0)
    return [slice(first, last) for first, last in pairwise(ends)]
