"""The paper's cells: computed once, stored compactly, rendered without training."""

import json
from pathlib import Path

import pandas as pd
import pytest

from countertrain.runs.profiles import FINAL
from reproduction import cells
from reproduction.__main__ import main
from reproduction.cells import Cell, Effort, compute_cell, paper_cells, read_cell
from reproduction.grids import GRIDS
from reproduction.products import PRODUCTS, Place
from reproduction.published import COSTS, IG, NAMES, TABLE1, TABLE_CI, VALIDITY
from reproduction.tables import TABLES, table1
from reproduction.writing import insert_tables

TINY = Effort(n_seeds=2, rounds=3, individuals=20, epochs=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("paper")
    place = Place(folder / "records", folder / "runs", folder / "rendered")
    for cell in paper_cells(["moons", "ol"]):
        compute_cell(cell, TINY, place.records, place.runs)
    for task in PRODUCTS["table-pooled"].tasks(["moons", "ol"], place, TINY):
        task.work()
    for cell in paper_cells(["moons"], "tuned", ablation=False):
        compute_cell(cell, TINY, place.records, place.runs)
    return place


def test_every_data_set_has_six_models_a_seed() -> None:
    names = [cell.name for cell in paper_cells(["ls"])]
    assert names == ["ls-bl", "ls-ct", "ls-ar", "ls-cd", "ls-bl-protected", "ls-ct-protected"]


def test_protected_cells_train_and_evaluate_with_the_immutable_feature_and_record_its_sensitivity(place: Place) -> None:
    free, protected = (read_cell(Cell("moons", "ct", variant), place.records) for variant in ("free", "protected"))
    assert free is not None
    assert protected is not None
    assert free.scores["settings"]["immutable"] == []
    assert protected.scores["settings"]["immutable"] == ["x1"]
    assert [len(rounds) for rounds in protected.scores["sensitivity"]] == [3, 3]
    assert "sensitivity" not in free.scores
    assert len(free.scores["fgsm"]) == 2
    assert len(free.scores["fgsm"][0]) == 10
    assert len(free.records) == 2 * 5 * 3


def test_a_stored_cell_can_be_traced_to_its_settings_and_versions(place: Place) -> None:
    result = read_cell(Cell("ol", "cd"), place.records)
    assert result is not None
    assert result.scores["settings"]["objective"] == "cd"
    assert result.scores["effort"] == [2, 3, 20]
    assert result.scores["environment"]["versions"]["torch"]


def test_a_stored_cell_is_not_computed_again_but_another_effort_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(cells, "train", refuse)
    compute_cell(Cell("moons", "bl"), TINY, place.records, place.runs)
    with pytest.raises(AssertionError, match="computed again"):
        compute_cell(
            Cell("moons", "bl"), Effort(n_seeds=3, rounds=3, individuals=20, epochs=2), place.records, place.runs
        )


OTHER_PROFILES = ("as-written", "longer", "categories", "neighbours")
ABSENT = (*(f"table1-{name}" for name in OTHER_PROFILES), *GRIDS)  # not among the records of these tests


@pytest.mark.parametrize("name", [name for name, product in PRODUCTS.items() if product.others])
def test_every_product_is_rendered_from_records_alone(name: str, place: Place) -> None:
    paths = PRODUCTS[name].render(["moons", "ol"], place, TINY)
    if name in ABSENT:
        assert paths == []
        return
    kinds = {path.suffix for path in paths}
    assert kinds >= ({".csv", ".md", ".tex"} if name.startswith("table") else {".png", ".svg"})
    assert all(path.stat().st_size > 0 for path in paths)


def test_table_1_has_the_published_number_beside_ours(place: Place) -> None:
    table = table1(["moons", "ol"], place.records)
    assert list(table["data"]) == ["Moon"] * 3 + ["OL"] * 3
    assert list(table["published"]) == [19.59, 8.0, 5.16, -1.93, -27.7, 40.86]
    by_hand = 1 - _ratio(place, "ip", "free", 0)
    other = 1 - _ratio(place, "ip", "free", 1)
    assert table["ours"][0] == pytest.approx(100 * (by_hand + other) / 2, rel=1e-4)


def test_table_1_shows_other_profiles_as_further_columns(place: Place) -> None:
    table = table1(["moons", "ol"], place.records)
    assert "as-written" not in table.columns
    assert [bool(text) for text in table["tuned"]] == [True] * 3 + [False] * 3
    assert [bool(text) for text in table["pooled"]] == [False, True, False] * 2
    assert table["tuned"][0] == (
        f"{table1(['moons'], place.records, 'tuned')['ours'][0]:.1f} ± "
        f"{table1(['moons'], place.records, 'tuned')['sd over seeds'][0]:.1f}"
    )


def test_the_table_of_accuracies_says_what_ct_loses(place: Place) -> None:
    row = TABLES["table-accuracy"](["moons"], place.records).iloc[0]
    ct, bl = (read_cell(Cell("moons", o), place.records) for o in ("ct", "bl"))
    assert ct is not None
    assert bl is not None
    lost = 50 * (sum(bl.scores["accuracy"]) - sum(ct.scores["accuracy"]))
    assert float(row["as-run: lost"]) == pytest.approx(lost, abs=0.06)
    assert row["BL"].startswith(f"{50 * sum(bl.scores['accuracy']):.1f} ± ")


def test_figure_1_is_drawn_from_four_linear_models(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FINAL["debt-age"], "epochs", 3)
    paths = PRODUCTS["figure-poc"].render(["ls"], place, TINY)
    assert {path.name for path in paths} == {"figure-poc.png", "figure-poc.svg"}
    assert len(list((place.runs / "poc").iterdir())) == 4


def _ratio(place: Place, metric: str, variant: str, model: int) -> float:
    def rounds(objective: str) -> "pd.Series[float]":
        result = read_cell(Cell("moons", objective, variant), place.records)
        assert result is not None
        mine = result.records[result.records["model"] == model]
        return mine.groupby("round")[metric].mean()

    return float((rounds("ct") / rounds("bl")).mean())


def test_tables_are_put_between_their_marks_in_a_document(place: Place, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "a\n<!-- begin table1 -->\nold\n<!-- end table1 -->\nb\n<!-- begin nothing -->\n<!-- end nothing -->\n"
    )
    PRODUCTS["table1"].render(["moons"], place, TINY)
    for _ in range(2):  # again changes nothing
        assert insert_tables(document, place.rendered) == ["table1"]
    text = document.read_text()
    assert text.startswith("a\n<!-- begin table1 -->\n| data | metric |")
    assert text.count("| Moon | IP |") == 1
    assert "old" not in text
    assert text.endswith("<!-- end table1 -->\nb\n<!-- begin nothing -->\n<!-- end nothing -->\n")


def test_published_numbers_cover_all_nine_data_sets() -> None:
    assert len(NAMES) == 9
    assert {data for data, _ in TABLE1} == {data for data, _ in COSTS} == set(VALIDITY) == set(IG) == set(NAMES)
    assert all(set(rows) == set(NAMES) for rows in TABLE_CI.values())
    for metric, average in (("ip", 15.64), ("ip_star", 25.29), ("cost", 18.49)):
        cells_of = [TABLE1[data, metric].percent for data in NAMES]
        assert sum(cells_of) / 9 == pytest.approx(average, abs=0.01)
    assert set(TABLES) <= set(PRODUCTS)


def test_the_command_renders_stored_records_and_prints_table_1(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "records").symlink_to(place.records)
    with pytest.raises(SystemExit) as stop:
        main(["table1", "--datasets", "moons", "ol", "--seeds", "2", "--render-only"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "Moon" in out
    assert "40.9" in out
    assert (tmp_path / "results" / "paper" / "table1.md").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tabel1"], "unknown table, figure or grid 'tabel1'; did you mean 'table1'?"),
        (["table1", "--datasets", "moon"], "the paper has no data set 'moon'; did you mean 'moons'?"),
    ],
)
def test_a_mistake_is_answered_in_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_records_are_plain_files_without_paths_of_a_machine(place: Place) -> None:
    for path in place.records.rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "/" not in json.dumps({k: v for k, v in json.loads(text).items() if k != "environment"})
