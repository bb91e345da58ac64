"""Where the questions of many people are answered by one model at once; everything here may run in a worker thread."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate, islice, pairwise, zip_longest
from typing import Self

import pandas as pd
import torch
from pydantic import TypeAdapter
from torch import Tensor

from countertrain.recourse.answer import Recourse
from countertrain.recourse.codes import Codes, CodeSource
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import N_STEPS
from countertrain.recourse.landmarks import Landmarks
from countertrain.recourse.reach import Reach
from countertrain.recourse.search import RecourseSearch, Request
from countertrain.recourse.why import PersonReasons, find_reasons
from countertrain.serve.anonymity import KAnonymous
from countertrain.serve.answers import (
    Chance,
    Decision,
    ExplainAnswer,
    Label,
    ModelMark,
    PredictAnswer,
    Sample,
    SampleRow,
)
from countertrain.serve.drift import Drift
from countertrain.serve.people import People, find_people
from countertrain.serve.privacy import Blur
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
    alone: Sequence[Mapping[str, Encoder]]
    """For people who want each class an encoder per column, with which the limits of one person are cheap to work out.
    """
    people: People
    """Who may be looked at."""
    sample: int
    """And how many of each class."""
    blur: Blur | None
    """What keeps real people out of answers; None where they may be shown as they are."""
    drift: Drift
    mark: ModelMark
    tau: float | None
    n_steps: int
    codes: Codes
    """The words for reasons."""

    @classmethod
    def of(
        cls,
        decider: Decider,
        *,
        name: str = "main",
        tau: float | None = None,
        n_steps: int = N_STEPS,
        people: People = "made-up",
        sample: int = 0,
        reasons: CodeSource = None,
    ) -> Self:
        """The desk of a decider, at which up to `sample` people per class may be looked at."""
        encoder, search = decider.encoder, RecourseSearch.of(decider)
        search = replace(search, examples=search.examples.astype(object))  # every answer needs them so
        identifying: tuple[str, ...] = ()
        if isinstance(people, KAnonymous):
            search, identifying = replace(search, examples=people.hide(search)), people.identifying
        alone = [
            {
                column.name: Encoder(Schema(columns=(column,)), (scale,), (dtype,))
                for column, scale, dtype in zip(decider.list_columns(k), encoder.scales, encoder.dtypes, strict=True)
            }
            for k in range(len(decider.classes))
        ]
        return cls(
            search=search,
            alone=alone,
            people=people,
            sample=sample,
            blur=None if people == "real" else Blur.of(search, identifying),
            drift=Drift.of(decider),
            mark=ModelMark(name, decider.id, version("countertrain")),
            tau=tau,
            n_steps=n_steps,
            codes=Codes.read(reasons, encoder.schema),
        )

    @cached_property
    def samples(self) -> Mapping[Label, Sequence[SampleRow]]:
        """People of each class who may be looked at, in random order, found when somebody wants to."""
        return find_people(self.search, self.people, self.sample)

    @cached_property
    def landmarks(self) -> Landmarks:
        """What reasons are found by, when somebody asks for them."""
        return Landmarks.of(self.decider)

    @property
    def decider(self) -> Decider:
        """Whoever decides here."""
        return self.search.decider

    @property
    def shows_real(self) -> bool:
        """Whether people who are shown are real ones, as they are or k-anonymous."""
        return self.blur is None or bool(self.blur.identifying)

    def show_people(self, label: Label | None, n: int) -> Sample:
        """Some people of a class, or of all classes in turn."""
        chosen: Iterator[SampleRow] = (
            (person for people in zip_longest(*self.samples.values()) for person in people if person)
            if label is None
            else iter(self.samples[label])
        )
        return Sample([*islice(chosen, n)], real=self.shows_real, model=self.mark)

    def predict(self, questions: Sequence[Question]) -> list[bytes]:
        """The decisions on the people of each question."""
        labels, x = self.decider.classes, self._encode(self._to_frame(questions))
        decided, probability = self.decider.weigh(x)  # (n,), (n, K)
        self.drift.count_people(x, decided)
        decisions = [
            Decision(labels[k], [Chance(*pair) for pair in zip(labels, row, strict=True)])
            for k, row in zip(decided.tolist(), probability.tolist(), strict=True)
        ]
        return [_DECISIONS(PredictAnswer(decisions[part], self.mark)) for part in _split_rows(questions)]

    def explain(self, questions: Sequence[ExplainQuestion]) -> list[bytes]:
        """What the people of each question could change; all are searched together, each within their own limits."""
        frame = self._to_frame(questions)
        origin = self._encode(frame)
        target = self.decider.decide(origin)
        self.drift.count_people(origin, target)
        for question, part in zip(questions, _split_rows(questions), strict=True):
            wanted = self.decider.settle_target(question.target)
            target[part] = torch.from_numpy(find_targets(wanted, self.decider.classes, target[part].numpy()))
        reach = self.search.find_reach(origin, target)
        for question, part in zip(questions, _split_rows(questions), strict=True):
            for k in target[part].unique().tolist():
                rows = part.start + (target[part] == k).nonzero()[:, 0]
                self._narrow(reach, question, rows, self.alone[k])
        options = [question.options for question in questions for _ in question.rows]
        found = self.search([Request(frame, target, reach)], options=options, tau=self.tau, n_steps=self.n_steps)[0]
        parts = _split_rows(questions)
        why = [
            self._find_reasons(found[part]) if question.reasons else None
            for question, part in zip(questions, parts, strict=True)
        ]
        told = [*found] if self.blur is None else self.blur.hide_people(found)
        self.drift.count_advice(told)
        explanations = [[replace(told[i], row=i - p.start) for i in range(p.start, p.stop)] for p in parts]
        return [_EXPLANATIONS(ExplainAnswer(*pair, self.mark)) for pair in zip(explanations, why, strict=True)]

    def _find_reasons(self, recourse: Recourse) -> list[PersonReasons]:
        return [*find_reasons(recourse, self.codes, self.landmarks)]

    def _narrow(self, reach: Reach, question: ExplainQuestion, rows: Tensor, alone: Mapping[str, Encoder]) -> None:
        """Narrow the reach of some people of a question, who want the same, to what they can change themselves."""
        encoder = self.decider.encoder
        for name in question.ranges.keys() | set(question.immutable):
            features = encoder.slices[encoder.schema.names.index(name)]
            constraints = alone[name].constraints(
                immutable=[name] if name in question.immutable else [],
                ranges={name: question.ranges[name]} if name in question.ranges else None,
            )
            mine = Reach.of(constraints, reach.origin[rows, features])
            reach.low[rows, features], reach.high[rows, features] = mine.low, mine.high

    def _to_frame(self, questions: Sequence[Question]) -> pd.DataFrame:
        """The people of all questions as one table; as objects, so that nobody's values change with their company."""
        people = [person for question in questions for person in question.rows]
        return self.decider.encoder.plain.make_frame(self.decider.encoder.plain.gather(people))

    def _encode(self, frame: pd.DataFrame) -> Tensor:
        return torch.from_numpy(self.decider.encoder.encode(frame, quiet=True))  # (n, D) float64


def _split_rows(questions: Sequence[Question]) -> list[slice]:
    """The rows of each question among all."""
    ends = accumulate((len(question.rows) for question in questions), initial=0)
    return [slice(first, last) for first, last in pairwise(ends)]
