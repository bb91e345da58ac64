"""Where the questions of many people are answered by one model at once; all of it may run in a worker thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise, zip_longest
from typing import Self

import pandas as pd
import torch
from pydantic import TypeAdapter
from torch import Tensor

from countertrain.constraints import Constraints
from countertrain.estimator import CounterfactualClassifier
from countertrain.models.deciding import logits_of
from countertrain.recourse.answer import Explanation
from countertrain.recourse.reach import Reach
from countertrain.recourse.search import RecourseSearch, Request
from countertrain.serve.answers import Chance, Decision, PredictAnswer, RecourseAnswer, Sample, SampleRow
from countertrain.serve.questions import Question, RecourseQuestion
from countertrain.tables.encoder import Encoder
from countertrain.tables.schema import Level, Schema
from countertrain.words import plain

__all__ = ["Desk"]

_DECISIONS = TypeAdapter(PredictAnswer).dump_json
_EXPLANATIONS = TypeAdapter(RecourseAnswer).dump_json


@dataclass(frozen=True, eq=False)
class Desk:
    """One classifier with all that it takes to answer, prepared once."""

    search: RecourseSearch
    constraints: Constraints
    alone: Mapping[str, Encoder]
    """An encoder for each column by itself, with which the limits of one person are cheap to know."""
    samples: Mapping[Level, Sequence[SampleRow]]
    """Real people of each class, in random order; none where none may be shown."""
    tau: float
    n_steps: int

    @classmethod
    def of(cls, classifier: CounterfactualClassifier, *, tau: float, n_steps: int, sample: int) -> Self:
        """The desk of a fitted classifier, at which up to `sample` real people of a class may be looked at."""
        encoder, search = classifier.encoder_, RecourseSearch.of(classifier)
        search = replace(search, examples=search.examples.astype(object))  # made once what every answer needs
        alone = {
            column.name: Encoder(Schema(columns=(column,)), encoder.centre[i : i + 1], encoder.scale[i : i + 1], (t,))
            for i, (column, t) in enumerate(zip(encoder.schema.columns, encoder.dtypes, strict=True))
        }
        return cls(search, encoder.constraints(), alone, _samples(search, sample), tau, n_steps)

    @property
    def classes(self) -> list[Level]:
        """The labels of the classes."""
        return [plain(label) for label in self.search.classes]

    def people(self, label: Level | None, n: int) -> Sample:
        """Some real people of a class, or of all classes in turn."""
        if label is not None:
            return Sample([*self.samples[label][:n]])
        in_turn = (person for people in zip_longest(*self.samples.values()) for person in people if person)
        return Sample([*islice(in_turn, n)])

    def predict(self, questions: Sequence[Question]) -> list[bytes]:
        """The decisions on the people of each question."""
        probability = self._logits(self._encoded(self._frame(questions))).double().softmax(-1).tolist()  # (n, K)
        labels = self.classes
        decisions = [
            Decision(labels[row.index(max(row))], [Chance(*pair) for pair in zip(labels, row, strict=True)])
            for row in probability
        ]
        return [_DECISIONS(PredictAnswer(decisions[part])) for part in _parts(questions)]

    def recourse(self, questions: Sequence[RecourseQuestion]) -> list[bytes]:
        """What the people of each question could change; all are searched for together, each within own limits."""
        frame = self._frame(questions)
        origin = self._encoded(frame)
        reach, target = Reach.of(self.constraints, origin), self._other(origin)
        for question, part in zip(questions, _parts(questions), strict=True):
            self._limit(reach, question, part)
            if question.target is not None:
                target[part] = self.classes.index(question.target)
        n_options = [question.n_options for question in questions for _ in question.rows]
        found = self.search([Request(frame, target, reach)], n_options=n_options, tau=self.tau, n_steps=self.n_steps)[0]
        return [
            _EXPLANATIONS(RecourseAnswer([self._shown(found[i], i - part.start) for i in range(part.start, part.stop)]))
            for part in _parts(questions)
        ]

    def _limit(self, reach: Reach, question: RecourseQuestion, part: slice) -> None:
        """Narrow the reach of the people of a question to what they can change themselves."""
        encoder = self.search.encoder
        for name in question.ranges.keys() | set(question.immutable):
            features = encoder.slices[encoder.schema.names.index(name)]
            constraints = self.alone[name].constraints(
                immutable=[name] if name in question.immutable else [],
                ranges={name: question.ranges[name]} if name in question.ranges else None,
            )
            mine = Reach.of(constraints, reach.origin[part, features])
            reach.low[part, features], reach.high[part, features] = mine.low, mine.high

    def _shown(self, explanation: Explanation, row: int) -> Explanation:
        """An explanation with the number of its row in the question, and no real people where none may be shown."""
        if any(self.samples.values()):
            return replace(explanation, row=row)
        return replace(explanation, row=row, options=tuple(replace(o, nearest=()) for o in explanation.options))

    def _frame(self, questions: Sequence[Question]) -> pd.DataFrame:
        """The people of all questions as one table; as objects, so that nobody's values change with their company."""
        people = [person for question in questions for person in question.rows]
        columns = {name: [person.get(name) for person in people] for name in self.search.encoder.schema.names}
        return pd.DataFrame(columns, dtype=object)

    def _encoded(self, frame: pd.DataFrame) -> Tensor:
        return torch.from_numpy(self.search.encoder.encode(frame))  # (n, D) float64

    def _logits(self, x: Tensor) -> Tensor:
        return logits_of(self.search.model, x.float())  # (n, K)

    def _other(self, origin: Tensor) -> Tensor:
        """(n,), the number of the other one of two classes; where there are more, everyone has named one."""
        return (self._logits(origin).argmax(1) + 1) % len(self.classes)


def _samples(search: RecourseSearch, n: int) -> dict[Level, list[SampleRow]]:
    """Up to n rows of the reference a class, in the user's units."""
    samples: dict[Level, list[SampleRow]] = {}
    for k, label in enumerate(map(plain, search.classes)):
        places = [] if search.reference is None else search.reference.of_class(k)[:n].tolist()
        rows = search.examples.iloc[places].astype(object)
        values = rows.where(rows.notna(), None).to_numpy().tolist()
        samples[label] = [SampleRow(label, dict(zip(rows.columns, row, strict=True))) for row in values]
    return samples


def _parts(questions: Sequence[Question]) -> list[slice]:
    """The rows of each question among all."""
    ends = accumulate((len(question.rows) for question in questions), initial=0)
    return [slice(first, last) for first, last in pairwise(ends)]
