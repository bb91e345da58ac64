import json

import pytest

from countertrain.training.history import EpochRecord, History

FIRST = EpochRecord(1, 2, 0.5, {"yloss": [0.7, 0.6]})
SECOND = EpochRecord(2, 2, 0.25, {"yloss": [0.5, float("nan")], "div": [0.1, 0.2]})


def test_a_metric_is_read_by_name_over_the_epochs_that_have_it() -> None:
    history = History([FIRST, SECOND])
    assert history["yloss"][0] == [0.7, 0.6]
    assert history["div"] == [[0.1, 0.2]]


def test_an_unknown_metric_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="no metric 'divergence' in this history; there are 'div', 'yloss'"):
        History([FIRST, SECOND])["divergence"]
    with pytest.raises(KeyError, match="there are none"):
        History()["yloss"]


def test_compiling_is_kept_apart_and_only_where_there_was_any() -> None:
    compiled = EpochRecord(1, 2, 0.5, {"yloss": [0.7]}, 21.5)
    assert compiled.as_json() == {"epoch": 1, "n_epochs": 2, "seconds": 0.5, "compile_seconds": 21.5, "yloss": [0.7]}
    assert EpochRecord.from_json(compiled.as_json()) == compiled
    assert "compile_seconds" not in FIRST.as_json()
    assert History.merged([History([compiled]), History([compiled])], "why").records[0].compile_seconds == 43


def test_a_record_survives_json() -> None:
    assert EpochRecord.from_json(json.loads(json.dumps(FIRST.as_json()))) == FIRST
    back = EpochRecord.from_json(json.loads(json.dumps(SECOND.as_json())))
    assert back.metrics["div"] == [0.1, 0.2]
    assert back.metrics["yloss"][1] != back.metrics["yloss"][1]  # NaN stays NaN
