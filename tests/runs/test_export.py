"""The ONNX file decides as the classifier does, from a table's own numbers."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from countertrain.models.architectures import Pieces
from countertrain.runs import export
from countertrain.tables.schema import Schema
from loans import loans, quick

X, Y = loans()


def run(path: Path, rows: Any) -> list[Any]:
    """Labels and probabilities by onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["label", "probabilities"], {"rows": rows})


@pytest.mark.parametrize("n_models", [1, 2])
def test_onnxruntime_decides_as_the_classifier_does(
    n_models: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    schema = Schema.infer(X).with_columns(age={"unit": "years"})
    classifier = quick(schema=schema, n_models=n_models, objective="bl").fit(X, Y)
    new = loans(seed=3)[0]
    assert new["debt"].isna().any()
    random = torch.get_rng_state()
    classifier.save_onnx(tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert torch.equal(torch.get_rng_state(), random)
    rows = classifier.onnx_rows(new[new.columns[::-1]])
    assert rows.shape == (len(new), 5)
    np.testing.assert_allclose(rows[:, 1], new["income"])
    assert rows[:, 2].tolist() == [["clerk", "none", "smith"].index(job) for job in new["job"]]
    assert rows[:, 3].tolist() == new["member"].tolist()
    for part in (rows, rows[:1]):
        label, probabilities = run(tmp_path / "model.onnx", part)
        expected = classifier.predict_proba(new[: len(part)])
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        assert classifier.classes_[label].tolist() == classifier.predict(new[: len(part)]).tolist()
    assert set(classifier.predict(new)) == {"granted", "refused"}
    said = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert said["classes"] == ["granted", "refused"]
    assert said["columns"][0] == {"name": "age", "unit": "years"}
    assert said["columns"][2] == {"name": "job", "levels": ["clerk", "none", "smith"]}


def test_a_threshold_is_part_of_the_file(tmp_path: Path) -> None:
    classifier = quick(target="granted", threshold=0.8, n_models=1, objective="bl").fit(X, Y)
    classifier.save_onnx(tmp_path / "model.onnx")
    new = loans(seed=3)[0]
    label, probabilities = run(tmp_path / "model.onnx", classifier.onnx_rows(new))
    assert classifier.classes_[label].tolist() == classifier.predict(new).tolist()
    assert (label != probabilities.argmax(1)).sum() > 5  # it matters
    np.testing.assert_allclose(probabilities, classifier.predict_proba(new), atol=1e-5)
    said = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert said["threshold"] == {"class": "granted", "probability": 0.8}


def test_a_monotone_model_is_monotone_in_the_file_too(tmp_path: Path) -> None:
    against = {"target": "granted", "monotone": {"income": "-"}}  # the rows say the contrary
    falls = {}
    for name, told in (("told", against), ("free", {})):
        classifier = quick(**told, n_models=1, objective="bl").fit(X, Y)
        classifier.save_onnx(tmp_path / "model.onnx")
        rows = [classifier.onnx_rows(X.assign(income=income)) for income in (1e5, 4e4, 3e4, 1e4)]
        falls[name] = -np.diff([run(tmp_path / "model.onnx", part)[1][:, 0] for part in rows], axis=0).min()
    assert falls["told"] <= 0
    assert falls["free"] > 0.1


@pytest.mark.parametrize(
    ("encoder", "model"), [("ranks", "mlp"), ("standard", "piecewise"), ("ranks", "piecewise"), ("standard", "mlp")]
)
def test_ranks_and_pieces_are_part_of_the_file(encoder: str, model: str, tmp_path: Path) -> None:
    rows, labels = loans(600)
    rows["debt"] = np.where(np.arange(600) % 3 == 0, 0, np.exp(rows["debt"] / 2500))  # a spike, and a heavy tail
    rows["grade"] = np.arange(600) % 2 + 3  # two knots beside many
    schema = Schema.infer(rows).with_columns(grade={"kind": "numeric", "integer": True})
    how = {"encoder": encoder, "model": model}
    classifier = quick(schema=schema, settings=how, n_models=1, objective="bl", epochs=20).fit(rows, labels)
    assert len(classifier.encoder_.ranks) == (4 if encoder == "ranks" else 0)
    assert isinstance(classifier.models_[0][0], Pieces) == (model == "piecewise")
    classifier.save_onnx(tmp_path / "model.onnx")
    new = rows.assign(
        age=np.linspace(10, 100, 600), income=np.linspace(-10_000, 90_000, 600), grade=np.linspace(2, 5, 600)
    )
    spread = []
    for table in (rows, new):  # `new` goes beyond all that was seen
        label, probabilities = run(tmp_path / "model.onnx", classifier.onnx_rows(table))
        np.testing.assert_allclose(probabilities, classifier.predict_proba(table), atol=1e-5)
        assert classifier.classes_[label].tolist() == classifier.predict(table).tolist()
        spread.append(probabilities[:, 0].std())
    assert min(spread) > 0.1
    known = rows.dropna()
    np.testing.assert_allclose(classifier.onnx_rows(known)[:, 4], known["debt"], rtol=1e-9, atol=1e-6)


class Moody(nn.Module):
    """A module whose course depends on its rows, which ONNX cannot say."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


def test_what_cannot_be_exported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFittedError):
        quick().save_onnx(tmp_path / "model.onnx")
    classifier = quick(module=Moody(), epochs=0).fit(X, Y)
    with pytest.raises(ValueError, match="a Moody cannot be exported to ONNX: ") as caught:
        classifier.save_onnx(tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else find_spec(name))
    with pytest.raises(ImportError, match=r"pip install 'countertrain\[onnx\]'"):
        classifier.save_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
