"""A teacher says what it makes of counterfactuals, never of rows that it has seen, and a model learns just that."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from countertrain.constraints import Constraints
from countertrain.estimator import CounterfactualClassifier
from countertrain.models.architectures import mlp
from countertrain.models.population import Population, as_population
from countertrain.runs.registry import OwnCode, build_objective
from countertrain.runs.settings import Settings, SettingsError
from countertrain.runs.weighting import weight_term
from countertrain.search.generators import eccco
from countertrain.search.rules import SGD
from countertrain.tables import load
from countertrain.testing import toy_rows
from countertrain.training.ct import CounterfactualMethod, Pairs, teach
from countertrain.training.method import Blocks, Term, TermState, add_up, needs
from countertrain.training.methods import cd, taught
from countertrain.training.teaching import Lesson, Teacher
from countertrain.training.trainer import CounterfactualTrainer
from loans import loans, quick

X, Y = loans()
Rows = NDArray[np.float64]


class Memory:
    """A teacher that knows nothing but the rows that it has seen; it has no `classes_`, which nobody asked for."""

    def fit(self, X: Rows, y: NDArray[np.int64]) -> None:
        self.classes, places = np.unique(y, return_inverse=True)
        self.known = {tuple(row): place for row, place in zip(X.tolist(), places.tolist(), strict=True)}
        self.width = X.shape[1]

    def predict_proba(self, X: Rows) -> Rows:
        said = np.full((len(X), len(self.classes)), 1 / len(self.classes))
        for i, row in enumerate(X.tolist()):
            if tuple(row) in self.known:
                said[i] = np.eye(len(self.classes))[self.known[tuple(row)]]
        return said


class Tempered(LogisticRegression):
    """A teacher whose probabilities are raised to a power: above 1 it is too sure, below 1 not sure enough."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power

    def predict_proba(self, X: Rows) -> Rows:
        said = super().predict_proba(X) ** self.power
        return said / said.sum(1, keepdims=True)


# --- a lesson ---------------------------------------------------------------------------------------------------------


def test_of_a_row_those_speak_that_never_saw_it_and_the_others_would_have_known() -> None:
    x, y = toy_rows(n=60)
    lesson = Lesson.of(Memory(), x, y, 3)
    places = torch.arange(60).unsqueeze(0)
    own = lesson(x.unsqueeze(0), places)
    assert own.shape == (1, 60, 3)
    torch.testing.assert_close(own, torch.full_like(own, 1 / 3))
    other = torch.tensor([int((lesson.fold != lesson.fold[i]).nonzero()[0]) for i in range(60)]).unsqueeze(0)
    known = lesson(x.unsqueeze(0), other)  # as if these rows had been made of others
    assert (known.argmax(-1) == y).all()
    assert known.amax(-1).min() > 0.99


def test_folds_hold_as_many_rows_of_each_class_and_are_drawn_the_same_each_time() -> None:
    x, y = toy_rows(n=66)
    random = torch.get_rng_state()
    fold, again = (Lesson.of(Memory(), x, y, 3).fold for _ in range(2))
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(fold, again)
    counts = torch.stack([torch.bincount(fold[y == k], minlength=4) for k in range(3)])
    assert counts.sum() == 66
    assert counts.max() - counts.min() <= 1
    assert not torch.equal(fold, torch.arange(66) % 4)


def test_the_teacher_that_was_given_is_copied_and_not_fitted() -> None:
    teacher = Memory()
    x, y = toy_rows()
    lesson = Lesson.of(teacher, x, y, 3)
    assert not hasattr(teacher, "known")
    assert isinstance(teacher, Teacher)
    assert len({id(one) for one, _ in lesson.fitted}) == len(lesson.fitted) > 1


def test_hidden_features_are_really_hidden() -> None:
    x, y = toy_rows(n_features=4, n=80)
    hidden = torch.tensor([False, True, False, True])
    lesson = Lesson.of(Memory(), x, y, 3, hidden)
    for teacher, _ in lesson.fitted:
        assert teacher.width == 2
        assert {*teacher.known} <= {*map(tuple, x[:, ::2].tolist())}
    blind, seeing = (Lesson.of(Tempered(), x, y, 3, hide) for hide in (hidden, None))
    places = torch.arange(80).unsqueeze(0)
    changed = x + 3 * hidden * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    assert torch.equal(blind(changed.unsqueeze(0), places), blind(x.unsqueeze(0), places))
    assert (seeing(changed.unsqueeze(0), places) - seeing(x.unsqueeze(0), places)).abs().max() > 0.1
    moved = blind(x.roll(1, 0).unsqueeze(0), places)
    assert (moved - blind(x.unsqueeze(0), places)).abs().max() > 0.1


def test_a_teacher_that_may_see_nothing_is_refused() -> None:
    x, y = toy_rows()
    with pytest.raises(ValueError) as error:
        Lesson.of(Memory(), x, y, 3, torch.ones(3, dtype=torch.bool))
    assert str(error.value) == "a teacher that sees only what can change needs a feature that can; let it see all"


@pytest.mark.parametrize(("power", "least", "most"), [(6.0, 2.0, 4.0), (0.6, 0.5, 0.95)])
def test_what_a_teacher_says_is_as_sure_as_it_is_right(power: float, least: float, most: float) -> None:
    x, y = toy_rows(n=400)
    lesson = Lesson.of(Tempered(power), x, y, 3)
    assert least <= lesson.temperature <= most
    places = torch.arange(400).unsqueeze(0)

    def loss(temperature: float) -> float:
        said = replace(lesson, temperature=temperature)(x.unsqueeze(0), places)[0]
        return -said[torch.arange(400), y].log().mean().item()

    assert loss(lesson.temperature) < loss(1.0) - 0.005
    best = min(np.linspace(0.5, 4, 300), key=loss)
    assert loss(lesson.temperature) < loss(best) + 0.002
    said = replace(lesson, temperature=1.0)(x.unsqueeze(0), places)
    power_of = (said.log() / lesson.temperature).softmax(-1)
    torch.testing.assert_close(lesson(x.unsqueeze(0), places), power_of)


def test_a_class_that_a_fold_has_never_seen_gets_the_least_probability() -> None:
    x, y = toy_rows(n=60)
    y = y.clamp(max=1)
    y[7] = 2  # the only one
    lesson = replace(Lesson.of(Memory(), x, y, 3), temperature=1.0)
    said = lesson(x.unsqueeze(0), torch.arange(60).unsqueeze(0))[0]
    same_fold = lesson.fold == lesson.fold[7]
    torch.testing.assert_close(said[same_fold, 2], torch.full((int(same_fold.sum()),), 1e-4).to(x), rtol=1e-3, atol=0)
    assert (said[~same_fold, 2] > 0.3).all()
    torch.testing.assert_close(said.sum(-1), torch.ones(60).to(x))
    assert said.min() > 0.9e-4


@pytest.mark.parametrize("teacher", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=3), Memory()])
def test_a_fold_whose_others_are_of_one_class_has_nothing_to_teach_but_that(teacher: Teacher) -> None:
    x, y = toy_rows(n_classes=2, n=40)
    y = torch.zeros_like(y)
    y[7] = 1
    lesson = replace(Lesson.of(teacher, x, y, 2), temperature=1.0)
    said = lesson(x.unsqueeze(0), torch.arange(40).unsqueeze(0))[0]
    same_fold = lesson.fold == lesson.fold[7]
    torch.testing.assert_close(said[same_fold, 0], torch.full((int(same_fold.sum()),), 1 - 1e-4).to(x))
    assert (said[~same_fold, 0] < 1 - 1e-3).any()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_fewest_rows_can_be_taught(n: int) -> None:
    x, y = toy_rows(n=n)
    said = Lesson.of(LogisticRegression(), x, y, 3)(x.unsqueeze(0), torch.arange(n).unsqueeze(0))
    assert torch.isfinite(said.log()).all()
    torch.testing.assert_close(said.sum(-1), torch.ones(1, n).to(x))


class OneColumn(Memory):
    def predict_proba(self, X: Rows) -> Rows:
        return super().predict_proba(X)[:, :1]


def test_probabilities_of_another_shape_are_refused() -> None:
    x, y = toy_rows(n=48)
    with pytest.raises(ValueError) as error:
        Lesson.of(OneColumn(), x, y, 3)
    assert str(error.value) == (
        "a teacher must give probabilities of shape (12, 3), one per row and class that it was fitted to; "
        "OneColumn gave (12, 1)"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_said_has_the_type_of_the_rows_and_each_model_has_its_own(dtype: torch.dtype) -> None:
    x, y = toy_rows(n=60, dtype=dtype)
    lesson = Lesson.of(Tempered(), x, y, 3)
    places = torch.stack([torch.randperm(60, generator=torch.Generator().manual_seed(i))[:20] for i in range(3)])
    rows = x[places] + 0.5
    together = lesson(rows, places)
    assert together.dtype == dtype
    assert together.shape == (3, 20, 3)
    for i in range(3):
        torch.testing.assert_close(lesson(rows[i : i + 1], places[i : i + 1])[0], together[i])
    assert (together[0] - together[1]).abs().max() > 0.1


# --- the term ---------------------------------------------------------------------------------------------------------


class Lookup(nn.Module):
    """A model whose logits are its input, so that terms can be computed by hand."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def drawn(p: int, n: int = 6, *, counted: bool = False) -> tuple[Tensor, Tensor, Pairs]:
    """Rows, classes and pairs that a teacher has looked at."""
    stream = torch.Generator().manual_seed(0)
    x, x_ce, x_plus, x_ae = torch.randn(4, p, n, 3, generator=stream, dtype=torch.float64)
    y, target, y_ae = torch.randint(3, (3, p, n), generator=stream)
    said = torch.randn(p, n, 3, generator=stream, dtype=torch.float64).softmax(-1)
    some = torch.arange(n).expand(p, n) % 2 == 0 if counted else None
    return x, y, Pairs(x_ce, x_plus, x_ae, target, y_ae, some, said)


@pytest.mark.parametrize("counted", [False, True])
def test_teaching_is_the_cross_entropy_of_every_counterfactual_mature_or_not(counted: bool) -> None:
    x, y, pairs = drawn(2, counted=counted)
    _, values = add_up({"teach": (1.0, teach)}, Population([Lookup()]), x[:1], y[:1], member(pairs, 0))
    by_hand = 0.0
    for row in range(6):
        logits = pairs.x_ce[0, row].tolist()
        total = sum(np.exp(logits))
        by_hand -= sum(p * np.log(np.exp(z) / total) for p, z in zip(pairs.taught[0, row], logits, strict=True)) / 6
    assert values["teach"].item() == pytest.approx(float(by_hand), rel=1e-12)


def member(pairs: Pairs, i: int) -> Blocks:
    one = slice(i, i + 1)
    parts = (getattr(pairs, name) for name in ("x_ce", "x_plus", "x_ae", "target", "y_ae"))
    counted = None if pairs.counted is None else pairs.counted[one]
    return Pairs(*(part[one] for part in parts), counted, pairs.taught[one]).split(1)[0]


@pytest.mark.parametrize("needed", [None, {"x", "x_ce"}, {"x", "x_ce", "x_plus"}])
def test_what_is_said_stays_with_its_counterfactual_when_pairs_are_shared_out(needed: set[str] | None) -> None:
    *_, pairs = drawn(2, n=7)
    assert pairs.taught is not None
    shares = pairs.split(3, needed)
    assert [share.taught["x_ce"].shape[1] for share in shares] == [3, 2, 2]
    assert torch.equal(torch.cat([share.taught["x_ce"] for share in shares], dim=1), pairs.taught)
    for share, rows in zip(shares, pairs.x_ce.tensor_split(3, dim=1), strict=True):
        first = 0
        for name, label in share.labels.items():
            if name == "x_ce":
                assert torch.equal(share.x[:, first : first + label.shape[1]], rows)
            first += label.shape[1]
        assert set(share.taught) == {"x_ce"}


def test_the_gradient_of_teaching_is_that_of_finite_differences() -> None:
    models = [mlp(3, 3, hidden=(4,), activation=nn.Tanh, seed=i).double() for i in range(2)]
    x, y, pairs = drawn(2)
    group = pairs.split(1)[0]
    population = Population(models)
    names, values = zip(*population.parameters.items(), strict=True)
    terms = taught(teacher=Memory(), lambda_teach=[0.5, 2.0]).terms

    def total(*parameters: Tensor) -> Tensor:
        population.parameters = dict(zip(names, parameters, strict=True))
        return add_up(terms, population, x, y, group)[0]

    assert torch.autograd.gradcheck(total, values)
    alone = {"teach": terms["teach"]}
    gradients = torch.autograd.grad(add_up(alone, population, x, y, group)[0].sum(), values)
    assert all(gradient.abs().sum(tuple(range(1, gradient.ndim))).min() > 1e-3 for gradient in gradients)
    assert not group.taught["x_ce"].requires_grad


def test_a_model_that_agrees_with_its_teacher_has_nothing_to_learn() -> None:
    x, y, pairs = drawn(1)
    logits = pairs.x_ce.clone().requires_grad_()
    agreed = replace(pairs, x_ce=logits, taught=logits.detach().softmax(-1)).split(1)[0]
    _, values = add_up({"teach": (1.0, teach)}, Population([Lookup()]), x, y, agreed)
    (gradient,) = torch.autograd.grad(values["teach"].sum(), logits)
    assert gradient.abs().max() < 1e-12


def test_teaching_needs_a_teacher() -> None:
    x, y = toy_rows()
    method = CounterfactualMethod({"teach": (1.0, teach)}, generator=eccco(n_steps=2), n_ce=10)
    with pytest.raises(ValueError) as error:
        CounterfactualTrainer(method, epochs=1).fit(mlp(3, 3).double(), x, y)
    assert str(error.value) == "the term 'teach' needs a teacher; give the method one: teacher=..."
    with pytest.raises(ValueError, match="teacher_sees must be one of all, mutable; got 'some'"):
        taught(teacher=Memory(), teacher_sees="some")  # type: ignore[arg-type]


# --- the method -------------------------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"generator": eccco(n_steps=20, tau=0.5, rule=SGD(0.5)), "n_ce": 30}


def train(method: CounterfactualMethod, models: list[nn.Module], **options: Any) -> Any:
    x, y = toy_rows(4, n=60)
    settings = {"constraints": Constraints.infer(x, mutability={0: "none"}), "epochs": 3, "batch_size": 24} | options
    return CounterfactualTrainer(method, **settings).fit(models, x, y)


def start(n: int) -> list[nn.Module]:
    return [mlp(4, 3, hidden=(8,), seed=i).double() for i in range(n)]


@pytest.mark.parametrize("generate", ["sweep", "batch"])
@pytest.mark.parametrize("immature", ["neighbour", "drop"])
def test_each_model_of_a_population_is_taught_as_it_is_alone(generate: Any, immature: Any) -> None:
    weights = [0.5, 2.0, 8.0]
    method = taught(teacher=Tempered(), lambda_teach=weights, generate=generate, immature=immature, **QUICK)
    models = start(3)
    history = train(method, models, seed=[4, 5, 6])
    assert history.one_by_one is None
    assert min(history["teach"][-1]) > 0.01
    assert all(0 < share < 1 for share in history["mature"][-1])
    for i, model in enumerate(models):
        alone = start(3)[i]
        train(method.member(i), alone, seed=4 + i)
        for one, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-8)
    plain = start(1)[0]
    train(cd(lambda_div=0.1, **QUICK), plain, seed=4)
    assert max((a - b).abs().max() for a, b in zip(plain.parameters(), models[0].parameters(), strict=True)) > 1e-3


@pytest.mark.parametrize("generate", ["sweep", "batch"])
def test_those_who_have_seen_a_factual_do_not_speak_of_its_counterfactual(generate: Any) -> None:
    said: list[Tensor] = []

    @needs("x_ce")
    def listen(state: TermState) -> Tensor:
        assert state["x_ce"].taught is not None
        said.append(state["x_ce"].taught)
        return teach(state)

    still = eccco(n_steps=1, tau=0.99, rule=SGD(0.0))  # counterfactuals are their factuals
    method = taught(teacher=Memory(), generator=still, n_ce=40, immature="drop", generate=generate)
    train(replace(method, terms={**method.terms, "teach": (1.0, listen)}), start(2), epochs=2, seed=[0, 1])
    everything = torch.cat(said, dim=1)
    assert everything.shape == (2, 80, 3)
    torch.testing.assert_close(everything, torch.full_like(everything, 1 / 3))


class Fixed(Memory):
    """A teacher that goes by the first three numbers of a row, whatever it was fitted to."""

    def predict_proba(self, X: Rows) -> Rows:
        return torch.from_numpy(X[:, :3]).softmax(-1).numpy()


@pytest.mark.parametrize("immature", ["neighbour", "drop"])
@pytest.mark.parametrize("generate", ["sweep", "batch"])
def test_what_is_taught_is_what_is_said_of_the_counterfactuals_themselves(immature: Any, generate: Any) -> None:
    temperature = Lesson.of(Fixed(), *toy_rows(4, n=60), 3).temperature
    moved: list[bool] = []

    @needs("x_ce", "x_plus")
    def compare(state: TermState) -> Tensor:
        x_ce = state["x_ce"]
        assert x_ce.taught is not None
        expected = (x_ce.x[..., :3].log_softmax(-1).clamp(min=np.log(1e-4)) / temperature).softmax(-1)
        torch.testing.assert_close(x_ce.taught, expected, rtol=0, atol=1e-3)
        moved.append(bool((x_ce.taught - x_ce.taught.roll(1, 1)).abs().max() > 0.2))
        return teach(state)

    method = taught(teacher=Fixed(), immature=immature, generate=generate, **QUICK)
    history = train(replace(method, terms={**method.terms, "teach": (1.0, compare)}), start(2), seed=[0, 1])
    assert 0 < history["mature"][-1][0] < 1
    assert len(moved) > 2
    assert all(moved)


def test_without_a_teacher_divergence_and_ridge_are_left() -> None:
    method = taught(teacher=None, lambda_div=0.4, lambda_reg=0.2, lambda_clf=3.0, lambda_teach=9.0, **QUICK)
    assert method == cd(lambda_div=0.4, lambda_reg=0.2, lambda_clf=3.0, **QUICK)
    assert list(taught(teacher=Memory()).terms) == ["yloss", "div", "ridge", "teach"]


def test_a_model_learns_what_its_teacher_says_of_counterfactuals() -> None:
    """A teacher that calls everything class 2 turns counterfactuals into class 2, though no label says so."""

    class Stubborn(Memory):
        def predict_proba(self, X: Rows) -> Rows:
            return np.tile([0.01, 0.01, 0.98], (len(X), 1))

    shares = []
    for weight in (0.0, 20.0):
        (model,) = models = start(1)
        adam: Callable[..., Any] = lambda parameters: torch.optim.Adam(parameters, lr=0.02)  # noqa: E731
        method = taught(teacher=Stubborn(), lambda_teach=weight, lambda_div=0.0, lambda_reg=0.0, **QUICK)
        train(method, models, epochs=20, optimizer=adam)
        x, _ = toy_rows(4, n=60)
        with torch.no_grad():
            shares.append(model(x).softmax(-1)[:, 2].mean().item())
    assert shares[0] < 0.5 < shares[1]


class Noting(Tempered):
    """A teacher that remembers, for all of its copies, what it was shown."""

    shown: list[Rows] = []  # noqa: RUF012  # shared by the copies

    def fit(self, X: Rows, y: NDArray[np.int64]) -> "Noting":
        Noting.shown.append(X)
        return super().fit(X, y)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("sees", "places"), [("all", [0, 1, 2, 3]), ("mutable", [1, 2, 3])])
def test_a_teacher_sees_what_it_may(sees: Any, places: list[int]) -> None:
    Noting.shown = []
    train(taught(teacher=Noting(), teacher_sees=sees, **QUICK), start(2), epochs=1, seed=[0, 1])
    x, _ = toy_rows(4, n=60)
    assert len(Noting.shown) == 4  # once for all models, epochs and mini-batches
    allowed = {*map(tuple, x[:, places].tolist())}
    assert all({*map(tuple, rows.tolist())} < allowed for rows in Noting.shown)


def test_rows_of_any_shape_are_taught_as_their_numbers_in_a_row() -> None:
    x, y = toy_rows(16, n=60)
    fixed = {0: "none", 5: "none"}
    flat = [mlp(16, 3, hidden=(8,), seed=i).double() for i in range(2)]
    images = [nn.Sequential(nn.Flatten(-3), copy.deepcopy(model)) for model in flat]
    method = taught(teacher=Tempered(), teacher_sees="mutable", **QUICK)
    ends = []
    for models, rows in ((flat, x), (images, x.view(60, 1, 4, 4))):
        limits = Constraints.infer(rows, mutability=fixed)
        trainer = CounterfactualTrainer(method, limits, epochs=3, batch_size=24, seed=[0, 1])
        assert trainer.fit(models, rows, y)["teach"][-1][0] > 0.01
        ends.append([p for model in models for p in model.parameters()])
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


# --- by name, and in the classifier -----------------------------------------------------------------------------------


def test_settings_say_who_teaches_what_and_how_much() -> None:
    data = load("moons")
    chosen = {"objective": "taught", "lambda_teach": 3.0, "teacher_sees": "mutable", "lambda_div": 0.3}
    method = build_objective(Settings.resolve("moons", chosen), data)
    assert isinstance(method, CounterfactualMethod)
    assert isinstance(method.teacher, HistGradientBoostingClassifier)
    assert (method.teacher_sees, method.terms["teach"], method.terms["div"][0]) == ("mutable", (3.0, teach), 0.3)
    nobody = build_objective(Settings.resolve("moons", chosen | {"teacher": "none"}), data)
    assert list(nobody.terms) == ["yloss", "div", "ridge"]
    mine = Memory()
    own = build_objective(Settings.resolve("moons", chosen), data, own=OwnCode(teacher=mine))
    assert isinstance(own, CounterfactualMethod)
    assert own.teacher is mine
    several = [Settings.resolve("moons", chosen | {"lambda_teach": weight}) for weight in (0.1, 0.7)]
    assert build_objective(several, data).terms["teach"][0] == [0.1, 0.7]


@pytest.mark.parametrize(
    ("teacher", "said"),
    [
        ("bosting", "setting 'teacher' must be 'boosting' or 'none'; got 'bosting'; did you mean 'boosting'?"),
        (3, "setting 'teacher' must be a valid string; got 3"),
    ],
)
def test_a_teacher_that_there_is_not_is_refused(teacher: Any, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        quick(teacher=teacher, objective="taught").fit(X, Y)
    assert said in str(error.value)


def weights(classifier: CounterfactualClassifier) -> Tensor:
    return torch.cat([p.detach().flatten() for model in classifier.models_ for p in model.parameters()])


def test_a_teacher_of_one_s_own_is_given_again_to_fit_again(tmp_path: Path) -> None:
    options = {"objective": "taught", "lambda_teach": 4.0, "epochs": 2}
    fitted = quick(teacher=Tempered(2.0), **options).fit(X, Y)
    by_name, nobody = (quick(teacher=name, **options).fit(X, Y) for name in ("boosting", "none"))
    assert not torch.allclose(weights(fitted), weights(by_name))
    assert not torch.allclose(weights(fitted), weights(nobody))
    assert "teach" in fitted.history_.records[-1].metrics
    assert "teach" not in nobody.history_.records[-1].metrics
    assert fitted.run_.own_code == {"teacher": "Tempered"}
    assert by_name.run_.own_code == {}
    fitted.save(tmp_path / "model")
    loaded = CounterfactualClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.settings_ == fitted.settings_
    with pytest.raises(SettingsError, match="setting 'teacher' must be 'boosting' or 'none'; got 'own code'"):
        loaded.fit(X, Y)
    again = CounterfactualClassifier.load(tmp_path / "model", teacher=Tempered(2.0))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert torch.equal(weights(again.fit(X, Y)), weights(fitted))
    by_name.save(tmp_path / "by name")
    with pytest.raises(ValueError, match="has no teacher of its own; load it without teacher="):
        CounterfactualClassifier.load(tmp_path / "by name", teacher=Tempered())
    named = CounterfactualClassifier.load(tmp_path / "by name")
    assert named.settings_.teacher == "boosting"
    assert torch.equal(weights(named.fit(X, Y)), weights(by_name))


def test_a_teacher_says_what_it_would_had_the_classes_weighed_as_they_do() -> None:
    logits = torch.tensor([[[0.3, -0.2], [1.0, 0.5]]], dtype=torch.float64)
    said = torch.tensor([[[0.25, 0.75], [0.6, 0.4]]], dtype=torch.float64)
    blocks = Blocks(torch.zeros(1, 2, 2).double(), {"x_ce": torch.zeros(1, 2, dtype=torch.long)}, taught={"x_ce": said})
    weight = torch.tensor([3.0, 1.0], dtype=torch.float64)
    weighted = torch.tensor([[0.5, 0.5], [1.8 / 2.2, 0.4 / 2.2]], dtype=torch.float64)  # p_k w_k, made to sum to 1

    def look(term: Term) -> float:
        everyone = as_population(lambda x: logits[0].repeat(2, 1) if len(x) == 4 else logits[0])
        x, y = torch.zeros(1, 2, 2).double(), torch.zeros(1, 2, dtype=torch.long)
        return float(add_up({"teach": (1.0, term)}, everyone, x, y, blocks)[1]["teach"])

    by_hand = -(weighted * logits[0].log_softmax(-1)).sum(-1).mean()
    assert look(weight_term(teach, weight)) == pytest.approx(float(by_hand))
    assert look(teach) != pytest.approx(float(by_hand), abs=1e-3)
