"""The command line: what it prints, what it leaves on disk, and how it says no."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from countertrain import cli
from countertrain.files import locked
from countertrain.runs.folder import read_run
from countertrain.runs.registry import list_names
from countertrain.runs.settings import Settings
from countertrain.runs.training import train

QUICK = ["--set", "epochs=2", "--set", "batch_size=500", "--set", "n_ce=50", "--set", "hidden=[8]"]
MATURING = ["--set", "tau=0.5", "--set", "n_steps=50", "--set", "learning_rate=0.02"]
SMALL = ["--rounds", "2", "--individuals", "10"]

Said = tuple[int, str, str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("COUNTERTRAIN_DEBUG", raising=False)

    def run(*args: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(list(args))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs: ct, bl (two seeds each), one (one seed), circles."""
    folder = tmp_path_factory.mktemp("runs")
    quick = {"epochs": 2, "batch_size": 500, "n_ce": 50, "hidden": [8], "learning_rate": 0.02}
    three = tmp_path_factory.mktemp("tables") / "three.csv"
    three.write_text("size,kind\n" + "".join(f"{i % 9},{'abc'[i % 3]}\n" for i in range(60)))
    for name, data, more in (
        ("ct", "moons", {"seeds": [0, 1]}),
        ("bl", "moons", {"seeds": [0, 1], "objective": "bl"}),
        ("one", "moons", {"objective": "bl"}),
        ("circles", "circles", {"objective": "bl"}),
        ("three", str(three), {"objective": "bl", "label": "kind"}),
    ):
        train(Settings.resolve(data, quick | more), folder / name)
    return folder


def test_train_writes_a_run_and_says_where(call) -> None:
    code, out, err = call("train", "moons", *QUICK, *MATURING, "--seeds", "3-4", "--immutable", "x1", "--out", "mine")
    assert (code, err) == (0, "")
    assert "moons, ct, 2 models  epoch 2/2" in out
    assert "model: mine\n" in out
    assert "accuracy on 900 test rows: 0." in out
    run = read_run(Path("mine"))
    assert (run.settings.seeds, run.settings.immutable, run.settings.epochs) == ((3, 4), ("x1",), 2)


def test_train_without_out_names_the_folder_after_the_settings_and_does_not_repeat_itself(call) -> None:
    assert call("train", "ol", *QUICK, "--seed", "7")[0] == 0
    (folder,) = Path("runs").iterdir()
    assert read_run(folder).settings.seeds == (7,)
    before = (folder / "weights.safetensors").stat().st_mtime_ns
    code, out, _ = call("train", "ol", *QUICK, "--seed", "7")
    assert code == 0
    assert f"{folder} already holds this run; nothing to do" in out
    assert (folder / "weights.safetensors").stat().st_mtime_ns == before
    assert call("train", "ol", *QUICK, "--seed", "8")[0] == 0
    assert len(list(Path("runs").iterdir())) == 2


def test_train_takes_a_csv_file_and_its_label(call, tmp_path: Path) -> None:
    rows = [{"kind": "ab"[i % 2], "size": i % 7, "colour": "rgb"[i % 3]} for i in range(60)]
    pd.DataFrame(rows).to_csv(tmp_path / "things.csv", index=False)
    code, _, err = call(
        "train", "things.csv", "--label", "kind", "--immutable", "colour", "--objective", "bl", "--set", "epochs=1",
        "--out", "t",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert read_run(Path("t")).data.classes == ("a", "b")
    code, out, _ = call("explain", "t", "--row", "0")
    assert code == 0
    assert out.startswith("row 0: ")
    assert "size" in out
    assert not any(line.strip().startswith("colour ") for line in out.splitlines())  # which nobody can change


def test_conventional_training_may_name_any_generator(call) -> None:
    assert call("train", "moons", *QUICK, "--objective", "bl", "--generator", "revise", "--out", "mine")[0] == 0


def test_settings_may_come_from_a_file_and_what_is_given_beside_it_wins(call, runs: Path) -> None:
    file = Settings.resolve(
        "moons", {"epochs": 2, "batch_size": 500, "hidden": [8], "objective": "bl", "seeds": [0, 1]}
    )
    Path("chosen.toml").write_text(file.to_toml())
    assert call("train", "moons", "--settings", "chosen.toml", "--out", "same")[0] == 0
    assert read_run(Path("same")).settings == file
    given = ("--seed", "7", "--objective", "ar", "--set", "n_ce=50", "--set", "epochs=1")
    assert call("train", "circles", "--settings", "chosen.toml", *given, "--out", "other")[0] == 0
    changed = {"data": "circles", "seeds": (7,), "objective": "ar", "n_ce": 50, "epochs": 1}
    assert read_run(Path("other")).settings == file.model_copy(update=changed)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file s.toml; `countertrain tune` writes one, and so does every run"),
        (b"tau = ", "s.toml: the settings are not valid TOML: "),
        (b"data = 'moons'\ntaus = 0.5", "s.toml: unknown setting 'taus'; did you mean 'tau'?"),
        (b"data = 'moons'\ntau = 5", "s.toml: setting 'tau' must be less than 1; got 5"),
        (b"tau = 0.5", "s.toml: setting 'data' is missing"),
        (b"\xff\xfe\x00", "s.toml is no text file, so it holds no settings"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused_in_one_sentence(call, content: bytes | None, message: str) -> None:
    if content is not None:
        Path("s.toml").write_bytes(content)
    code, _, err = call("train", "moons", "--settings", "s.toml")
    assert code == 2
    assert err.startswith(f"countertrain: {message}")
    assert err.count("\n") == 1


def test_evaluate_prints_outcomes_and_writes_records(call, runs: Path) -> None:
    code, out, err = call("evaluate", str(runs / "ct"), *SMALL)
    assert (code, err) == (0, "")
    assert "CT (2 seeds)" in out
    assert "IP, implausibility" in out
    assert "Reduction" not in out
    assert len(pd.read_csv(runs / "ct" / "records.csv")) == 2 * 5 * 2


def test_evaluate_against_a_baseline_prints_reductions_with_both_spreads(call, runs: Path) -> None:
    code, out, err = call("evaluate", str(runs / "ct"), "--baseline", str(runs / "bl"), *SMALL)
    assert (code, err) == (0, "")
    for words in (
        "CT (2 seeds)",
        "BL (2 seeds)",
        "Reduction against the baseline",
        "sd over training seeds",
        "IP*",
        "tau = 0.95",
    ):
        assert words in out


def test_explain_shows_the_rows_that_are_asked_for_by_their_numbers(call, runs: Path) -> None:
    code, out, err = call("explain", str(runs / "one"), "--row", "3", "--row", "7", "--out", "found.csv")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("row ")] == ["row 3", "row 7"]
    assert "2 people: found.csv" in out
    alone = pd.read_csv("found.csv")
    assert alone["row"].tolist() == [3, 7]
    assert call("explain", str(runs / "one"), "--out", "all.csv")[0] == 0
    whole = pd.read_csv("all.csv")
    assert whole["row"].tolist() == list(range(900))
    for number in (3, 7):  # each row is given what it would be given alone
        mine, theirs = (frame[frame["row"] == number][["x1", "x2", "valid"]] for frame in (alone, whole))
        assert mine.to_numpy(float) == pytest.approx(theirs.to_numpy(float), abs=1e-4)
    assert call("explain", str(runs / "one"), "--row", "7", "--out", "found.json")[0] == 0
    assert [one["row"] for one in json.loads(Path("found.json").read_text())] == [7]
    code, out, _ = call("explain", str(runs / "one"))
    assert out.splitlines()[-1] == "... and 895 more people"


def test_rows_are_not_mixed_up_with_columns_of_such_names(call, tmp_path: Path) -> None:
    rows = [{"row": i % 7 * 100, "option": "xy"[i % 2], "kind": "ab"[i % 2]} for i in range(60)]
    pd.DataFrame(rows).to_csv(tmp_path / "things.csv", index=False)
    assert call("train", "things.csv", "--objective", "bl", "--set", "epochs=1", "--out", "t")[0] == 0
    assert call("explain", "t", "--row", "5", "--out", "found.csv")[0] == 0
    found = pd.read_csv("found.csv")
    assert found.columns[0] == "row_"
    assert found["row_"].tolist() == [5]
    assert found["row"][0] % 1 == 0


def test_list_shows_data_sets_and_settings(call) -> None:
    code, out, _ = call("list")
    assert code == 0
    assert "breast-cancer" in out
    assert "lambda_reg=0.5" in out
    code, out, _ = call("list", "settings")
    assert code == 0
    assert all(name in out for name in Settings.model_fields if name != "data")


def test_list_teaches_methods_and_searches(call) -> None:
    code, out, _ = call("list", "methods")
    assert code == 0
    assert all(name in out for name in list_names("objective"))
    assert "Conventional training" in out
    code, out, _ = call("list", "generators")
    assert code == 0
    assert all(name in out for name in list_names("generator"))
    assert "energy_schedule" in out
    code, _, err = call("list", "metods")
    assert code == 2
    assert "list shows 'data', 'settings', 'methods' or 'generators'; got 'metods'" in err


def test_help_is_no_mistake_and_no_arguments_is_one(call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert "A first tour" in out
    code, out, _ = call()
    assert code == 2
    assert "Usage" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("train moon", "unknown data set 'moon'; did you mean 'moons'?"),
        ("train no.csv", "there is no file no.csv; check the path"),
        (
            "train moons --objective at",
            "setting 'objective' must be 'ct', 'taught', 'bl', 'ar', 'cd', "
            "'pgd', 'trades', 'jem', 'ross', 'gradsup' or 'counternet'; got 'at'",
        ),
        ("train moons --set taus=1", "unknown setting 'taus'; did you mean 'tau'?"),
        ("train moons --set tau=2", "setting 'tau' must be less than 1; got 2"),
        ("train moons --set tau", "a setting is given as NAME=VALUE, for example tau=0.5; got 'tau'"),
        ("train moons --set hidden=[-1]", "setting 'hidden' "),
        ("train moons --immutable x9", "--immutable names 'x9', which is no column of moons; there are 'x1', 'x2'"),
        ("train moons --increase x11", "--increase names 'x11', which is no column of moons; did you mean 'x1'?"),
        ("train moons --epochs -1", "--epochs must be at least 0; got -1"),
        ("train moons --epochs many", "--epochs must be a valid integer; got many"),
        ("train moons --seed 1 --seeds 2,3", "give either --seed or --seeds, not both"),
        ("train moons --seeds a-b", "--seeds takes numbers such as 0-9 or 1,5,7; got 'a-b'"),
        ("train moons --seeds 1,1", "--seeds must name at least one seed, and none twice; got '1,1'"),
        ("train moons --seeds 5-3", "--seeds must name at least one seed, and none twice; got '5-3'"),
        (
            "train moons --settings {runs}/one/settings.toml --profile tuned",
            "--settings says all that a profile would say; give one of --settings and --profile",
        ),
        ("train moons --set learning_rate=1e30", "the loss is not finite at epoch 1, batch 2"),
        ("train moons --set n_ce=5000", "n_ce must be at most the number of training rows"),
        ("train moons --set model=lenet", "lenet needs square images"),
        ("train moons --seed 99999999999999999999999", "setting 'seeds' "),
        ("train", "Missing argument"),
        ("train moons --batch 3", "No such option"),
        ("bake", "No such command"),
        ("list models", "list shows 'data', 'settings', 'methods' or 'generators'; got 'models'"),
        ("evaluate nowhere", "there is no folder nowhere; give the folder of a trained model"),
        (
            "evaluate .",
            ". holds no trained model: it has no checksums.json; give one that `save` or `countertrain train`",
        ),
        ("evaluate {runs}/one --rounds 1", "--rounds must be at least 2; got 1"),
        ("evaluate {runs}/one --baseline {runs}/circles", "--baseline must be of the same data; "),
        (
            "evaluate {runs}/one --baseline {runs}/bl",
            "--baseline must have as many seeds; {runs}/one has 1, {runs}/bl 2",
        ),
        ("explain {runs}/one --row 900", "--row must lie in 0..899, the rows that there are; got 900"),
        ("explain {runs}/one --row -1", "--row must lie in 0..899, the rows that there are; got -1"),
        ("explain {runs}/one --row 0 --target 7", "--target must be one of the classes '0', '1'; got '7'"),
        ("explain {runs}/three --row 0", "--target must be given where there are 3 classes"),
        (
            "explain {runs}/one --row 0 --immutable x7",
            "--immutable names 'x7', which is no column of the model; there are 'x1', 'x2'",
        ),
        ("explain {runs}/one --rows nowhere.csv", "there is no file nowhere.csv"),
        ("explain {runs}/one --options 0", "--options must be at least 1; got 0"),
        ("explain {runs}/one --options 11", "--options must be at most 10; got 11"),
        ("explain {runs}/one --row 0 --tau 1", "--tau must lie strictly between 0 and 1; got 1"),
        ("train moons --out {runs}/one", "{runs}/one holds a run with other settings ("),
        ("train moons --resume --overwrite", "a run is either resumed or overwritten; give one of --resume and --over"),
        ("train moons --out {runs}", "{runs} holds bl, which is no part of a trained model; choose another --out"),
        (
            "train moons --overwrite --out {runs}",
            "{runs} holds bl, which is no part of a trained model",
        ),
        ("train moons --out {runs}/one/settings.toml/below", "cannot write to the output folder {runs}/one/settings"),
    ],
)
def test_a_mistake_ends_in_one_line_that_says_what_would_do(call, runs: Path, args: str, message: str) -> None:
    args = args.format(runs=runs)
    if args.startswith("evaluate") and "--rounds" not in args:
        args += " --rounds 2 --individuals 4"
    code, _, err = call(*args.split())
    assert code == 2
    assert err.startswith("countertrain: " + message.format(runs=runs))
    assert err.count("\n") == 1
    assert err.endswith("\n")


def test_truncated_weights_end_in_one_line(call, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "one", tmp_path / "copy")
    weights = tmp_path / "copy" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:90])
    for command in ("explain", "evaluate", "report", "serve", "export"):
        code, _, err = call(command, "copy")
        assert code == 2
        assert err.startswith("countertrain: copy/weights.safetensors is not as checksums.json says, but truncated")
        assert err.count("\n") == 1


def test_what_is_said_of_a_folder_names_the_options_of_the_command(call, runs: Path) -> None:
    assert call("train", "moons", *QUICK, "--objective", "bl", "--out", "m")[0] == 0
    code, _, err = call("train", "moons", *QUICK, "--out", "m")
    assert code == 2
    assert err == (
        "countertrain: m holds a run with other settings (objective is 'bl' in its settings.toml, 'ct' here); "
        "choose another --out, or give --overwrite\n"
    )
    shutil.copytree("m", "m/unfinished/done")
    shutil.copy("m/settings.toml", "m/unfinished")
    code, _, err = call("train", "moons", *QUICK, "--objective", "bl", "--out", "m")
    assert code == 2
    assert err == (
        "countertrain: m holds an unfinished run of these settings; give --resume to go on with it, or --overwrite to "
        "start anew\n"
    )
    with locked(Path("m")):
        code, _, err = call("train", "moons", *QUICK, "--objective", "bl", "--overwrite", "--out", "m")
    assert code == 2
    assert err.startswith("countertrain: m is in use by process ")
    assert "; wait for it, choose another --out, or delete m/.lock" in err
    assert call("train", "moons", *QUICK, "--objective", "bl", "--resume", "--out", "m")[0] == 0
    code, _, err = call("train", "circles", *QUICK, "--twin", "--out", "c")
    assert code == 0
    assert call("train", "circles", *QUICK, "--out", "c")[0] == 0  # the model is there, and a twin besides
    assert call("train", "circles", *QUICK, "--out", "d")[0] == 0
    code, _, err = call("train", "circles", *QUICK, "--twin", "--out", "d")
    assert code == 2
    assert err == "countertrain: d holds this run without a twin; choose another --out, or give --overwrite\n"


def test_a_debugger_can_have_the_traceback(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DEBUG", "1")
    with pytest.raises(ValueError, match="unknown data set"):
        cli.main(["train", "moon"])


def test_stopping_an_evaluation_leaves_no_traceback(call, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("countertrain.runs.run.Run.measure", interrupted)
    code, _, _ = call("evaluate", str(runs / "one"), *SMALL)
    assert code == 130
