"""Command lines that are refused, in one sentence with status 2, and what needs no training."""

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest

from vrgd_ray import ConfigError, __main__, cli, train, tune
from vrgd_ray.training.configuration import Configuration
from vrgd_ray.training.result import TrainingResult
from vrgd_ray.training.worker_context import CheckpointInterval

REFUSED = [
    (["--pipeline", "pipelines.digit"], "did you mean 'pipelines.digits'"),
    (["--pipeline", "pipelines.digits:Digit"], "did you mean 'Digits'"),
    (["--pipeline-args", "size=3"], "unknown pipeline argument 'size'"),
    (["--pipeline-args", "size"], "key=value"),
    (["--pipeline-args", "data=*.parquet"], """quote it: 'data="*.parquet"'"""),
    (["--pipeline-args", "data=[a"], """quote it: 'data="[a"'"""),
    (["--pipeline-args", "since=2024-13-45"], """quote it: 'since="2024-13-45"'"""),
    (["--optimizers", "vr_adamww"], "did you mean 'vr_adamw'"),
    (["--batch-sizes", "32,100"], "nearest that are: 96 and 104"),
    (["--batch-sizes", "32,4096"], "above the 1149 training samples"),
    (["--batch-sizes", "8,64"], "below the reference batch 32"),
    (["--num-groups", "64"], "less than one sample"),
    (["--num-groups", "1"], "num_groups = 1"),
    (["--max-batch-size", "16"], "max_batch_size = 16"),
    (["--max-batch-size", "0"], "max_batch_size = 0"),
    (["--batch-sizes", ","], "batch_sizes is empty"),
    (["--batch-sizes", "32", "--optimizers", "adamw"], "adamw at batch 32 is the reference itself"),
    (["--set", "lr=-1"], "lr = -1"),
    (["--set", "lr=0"], "lr = 0"),
    (["--set", "lrr=1"], "did you mean 'lr'"),
    (["--set", "gsnr_lower=2", "--set", "gsnr_upper=1"], "can cross"),
    (["--set", "schedule=cosin"], "did you mean 'cosine'"),
    (["--set", "lr"], "name=value"),
    (["--resolution", "1"], "resolution = 1"),
    (["--resolution", "3"], "resolution = 3"),
    (["--alpha", "0"], "alpha = 0"),
    (["--alpha", "0.7"], "alpha = 0.7"),
    (["--margin", "-0.1"], "margin = -0.1"),
    (["--margin", "wide"], "--margin 'wide'"),
    (["--seeds", "1"], "seeds = 1"),
    (["--trials", "0"], "trials = 0"),
    (["--epochs", "0"], "epochs = 0"),
    (["--epochs", "nan"], "epochs = nan"),
    (["--workers-per-trial", "0"], "workers_per_trial = 0"),
    (["--workers-per-trial", "9"], "at most 8 workers"),
    (["--workers-per-trial", "8", "--set", "num_groups=4"], "at most 4 workers"),
    (["--workers-per-trial", "8", "--set", "num_groups=16,4"], "at most 4 workers"),
    (["--concurrent-trials", "0"], "concurrent_trials = 0"),
    (["--gpus-per-worker", "-1"], "gpus_per_worker = -1"),
    (["--max-hours", "-1"], "max_hours = -1"),
    (["--wait", "-1"], "wait = -1"),
    (["--max-samples", "0"], "max_samples = 0"),
    (["--name", "../elsewhere"], "--name"),
    (["--resume"], "nothing to resume"),
    (["--resume", "--dry-run"], "leave --resume out"),
    (["--tracking-uri", "nonsense://x"], "nonsense://x"),
    (["--tracking-uri", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be used"),
    (["--register", "mine", "--tracking-uri", "none"], "--register needs MLflow"),
    (["--storage", "nonsense://x"], "the storage nonsense://x"),
    (["--optimizers", ""], "--optimizers is empty"),
    (["--margin", "100%"], "accepts anything"),
    (["--batch-sizes", "64", "--max-batch-size", "128"], "exclude each other"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSED, ids=lambda value: " ".join(value) if list is type(value) else ""
)
def test_bad_input_gets_a_sentence_and_status_2_and_leaves_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vrgd_ray.training.connection.connect", lambda *a, **k: nullcontext())
    monkeypatch.setattr("vrgd_ray.limit.session.run_search", lambda *a, **k: pytest.fail("the search began"))
    assert tune.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "runs" / "digits").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("vrgd_ray.ConfigError('label holds -1.')", "vrgd tune: label holds -1.\n"),
        ("OSError('gone')", "vrgd tune: the pipeline's test_data() cannot be read: OSError: gone.\n"),
    ],
)
def test_test_data_that_cannot_be_read_is_refused_before_the_search(error, message, tmp_path, monkeypatch, capsys):
    member = f"    def test_data(self):\n        raise {error}"
    module = f"without_test_{error[:3].lower()}"
    (tmp_path / f"{module}.py").write_text(
        f"import vrgd_ray\nfrom pipelines.digits import Digits\nclass Mine(Digits):\n{member}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vrgd_ray.limit.session.run_search", lambda *a, **k: pytest.fail("the search began"))
    assert tune.main(["--pipeline", module]) == 2
    assert capsys.readouterr().err == message
    assert not (tmp_path / "runs").exists()


def test_a_name_that_exists_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    assert tune.main(["--name", "mine"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_show_space_prints_every_searched_field(capsys):
    assert tune.main(["--show-space", "--set", "gsnr_upper=2", "--batch-sizes", "64", "--set", "num_groups=8,16"]) == 0
    text = capsys.readouterr().out
    assert "vr_adamw at batch 64" in text
    assert re.search(r"gsnr_upper +fixed 2", text)
    assert re.search(r"num_groups +one of 8, 16", text)
    assert re.search(r"lr +0\.000849 to 0\.0212 on a log scale", text)


def test_workers_are_held_against_the_groups_that_trials_will_have(capsys):
    assert tune.main(["--workers-per-trial", "16", "--set", "num_groups=16", "--show-space"]) == 0
    assert re.search(r"num_groups +fixed 16", capsys.readouterr().out)


def test_show_space_prints_a_space_that_the_pipeline_brings(tmp_path, monkeypatch, capsys):
    body = "return {'lr': trial.suggest_float('lr', 0.5, 0.7)}"
    space = f"class Space:\n    def suggest(self, trial, context):\n        {body}"
    brings = "class Mine(Digits):\n    search_space = Space()"
    (tmp_path / "mine_with_space.py").write_text(f"from pipelines.digits import Digits\n{space}\n{brings}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert tune.main(["--pipeline", "mine_with_space", "--show-space", "--batch-sizes", "64"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"adamw at batch 64\n  lr +0\.5 to 0\.7\n", text)
    assert "weight_decay" not in text


def test_dry_run_states_plan_and_cost_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert tune.main(["--dry-run", "--batch-sizes", "64,128"]) == 0
    text = capsys.readouterr().out
    # 6 cells of 8 trials; seeds: 5 per candidate and 2 x 5 for the reference and its control, or twice that.
    assert "83 runs if every cell is decided at the first look, 118 if none is" in text
    assert re.search(r"Samples: [\d.]+ to [\d.]+ million", text)
    assert re.search(r"accepted 80 % of the time if the margin is 1\.\d\d standard deviations", text)
    assert re.search(r"By the margin in standard deviations: \d+ % at 1, \d+ % at 1\.5", text)
    assert "Not counted: 10-20 runs for the controls of a VR optimizer that wins." in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["--trials", "x"]])
def test_help_and_argument_errors_answer_within_two_seconds(arguments):
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "vrgd_ray.tune", *arguments], capture_output=True, text=True)
    assert time.monotonic() - started < 2
    assert done.returncode == (0 if arguments == ["--help"] else 2)
    assert "usage: vrgd tune" in done.stdout + done.stderr


def test_help_states_the_default_margin_and_its_reason():
    text = tune.build_parser().format_help()
    assert f"it is {tune.DEFAULT_MARGIN} of the" in text
    assert "spread over seeds" in text


def test_a_full_grid_has_one_look_and_says_what_it_costs(capsys):
    options = ["--full-grid", "--batch-sizes", "64", "--trials", "2", "--no-controls", "--no-warm-start"]
    assert tune.main([*options, "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "All 3 cells and the reference: 33 runs, fewer where seeds diverge." in text
    assert "over 2 optimizers and 1 look." in text


def test_pruning_is_on_unless_switched_off_and_help_says_what_is_never_pruned():
    parser = tune.build_parser()
    assert (parser.parse_args([]).prune, parser.parse_args(["--no-prune"]).prune) == (True, False)
    assert "several workers are never pruned" in " ".join(parser.format_help().split())


def test_installed_command_has_both_subcommands(capsys):
    assert __main__.main(["--help"]) == 0
    assert "tune" in capsys.readouterr().out
    assert __main__.main([]) == 2
    assert __main__.main(["tun"]) == 2


NORMED = "pipeline: workloads:NormedBlobs\nrecipe: {optimizer: adamw, batch_size: 32, lr: 0.01}\n"
CONFIG = "pipeline: pipelines.digits\nrecipe: {optimizer: adamw, batch_size: 32, lr: 0.01, epochs: 1}\n"


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        (None, [], "cannot be read"),
        ("pipeline: [", [], "cannot be read"),
        ("recipe: {}", [], "must hold pipeline (a name), recipe"),
        (CONFIG.replace("lr:", "lrr:"), [], "did you mean 'lr'"),
        (CONFIG.replace("adamw", "adamx"), [], "did you mean 'adam"),
        (CONFIG.replace("digits", "digit"), [], "did you mean 'pipelines.digits'"),
        (CONFIG, ["--workers", "0"], "--workers 0"),
        (CONFIG, ["--workers", "9"], "at most 8 workers"),
        (CONFIG, ["--workers", "4:2"], "must not exceed"),
        (CONFIG, ["--workers", "1:9"], "at most 8 workers"),
        (CONFIG, ["--workers", "two"], "as 2:8"),
        (CONFIG, ["--checkpoint-every", "0"], "--checkpoint-every 0"),
        (CONFIG, ["--checkpoint-every", "often"], "seconds, as 60, or epochs, as 0.5epochs"),
        (CONFIG, ["--checkpoint-every=-1epochs"], "must be above 0"),
        (CONFIG, ["--keep-checkpoints", "1"], "--keep-checkpoints 1 must be at least 2"),
        (CONFIG, ["--storage", "/proc/x"], "the storage /proc/x"),
        (CONFIG, ["--output", "/proc/x"], "cannot write to /proc/x"),
        (CONFIG + "pipeline_args: 5\n", [], "pipeline_args (names and values)"),
        (NORMED, ["--max-samples-per-pass", "2"], "use more groups"),
        (CONFIG, ["--gpus-per-worker", "-1"], "--gpus-per-worker -1"),
        (CONFIG, ["--max-samples-per-pass", "0"], "max_samples_per_pass = 0"),
        (CONFIG, ["--storage", "ftp://here"], "the storage ftp://here"),
        (CONFIG, ["--resume", "--name", "gone"], "nothing to resume"),
        (CONFIG, ["--wait", "-1"], "--wait -1"),
        (CONFIG, ["--set", "lr=1:2"], "one value"),
        (CONFIG, ["--set", "schedule=cosin"], "did you mean 'cosine'"),
        (CONFIG, ["--set", "batch_size=33"], "multiple"),
    ],
)
def test_train_refuses_bad_input(config, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if config is not None:
        (tmp_path / "best.yaml").write_text(config)
    assert train.main(["--config", "best.yaml", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_train_needs_a_configuration_or_a_run_to_go_on_with(capsys):
    for arguments in ([], ["--resume"]):
        assert train.main(arguments) == 2
        assert "--config is needed" in capsys.readouterr().err


def test_a_run_is_resumed_with_what_it_was_begun_with_or_not_at_all(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.yaml").write_text(CONFIG)
    begun = Configuration.read(tmp_path / "best.yaml")
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/train.yaml").write_text(begun.to_yaml())
    arguments = ["--config", "best.yaml", "--name", "first", "--resume", "--set", "lr=0.1"]
    assert train.main(arguments) == 2
    assert "with lr = 0.1 (it was 0.01); repeat its command" in capsys.readouterr().err
    assert train.main(arguments[:4]) == 2
    assert "runs/first exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("60", CheckpointInterval(seconds=60)),
        ("0.5epochs", CheckpointInterval(samples=500)),
        ("1epoch", CheckpointInterval(samples=1000)),
    ],
)
def test_checkpoints_by_seconds_or_by_epochs(text, interval):
    assert train._parse_interval(text, 1000) == interval


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (None, "The run diverged after 7 steps: its loss, a parameter or the metric is no longer finite."),
        ("evaluate() gave auc = nan", "The run broke after 7 steps: evaluate() gave auc = nan."),
    ],
)
def test_a_run_without_a_result_says_why(error, sentence, capsys):
    result = TrainingResult(metrics={}, diverged=True, error=error, steps=7)
    assert train._print_result(result, "auc") == 1
    assert capsys.readouterr().err.strip() == sentence


def test_pipeline_arguments_read_numbers_and_words():
    assert cli.pipeline_arguments(["size=3", "name=abc", "flag=true"]) == {"size": 3, "name": "abc", "flag": True}


@pytest.mark.parametrize("text", ["*.parquet", "[a", 'a "b": c: \\d', "2024-13-45", "@ü"])
def test_pipeline_arguments_that_are_no_yaml_are_refused_with_what_to_type(text):
    with pytest.raises(ConfigError, match="not valid YAML") as refused:
        cli.pipeline_arguments([f"data={text}"])
    (typed,) = shlex.split(str(refused.value).partition("quote it: ")[2])
    assert cli.pipeline_arguments([typed]) == {"data": text}


def test_the_command_to_go_on_has_no_limits_that_would_end_it_at_once(monkeypatch):
    typed = ["vrgd", "tune", "--max-samples", "10", "--trials", "3", "--max-hours=2", "--seed", "1"]
    monkeypatch.setattr(sys, "argv", typed)
    assert cli.resume_command("x") == "python -m vrgd_ray.tune --trials 3 --seed 1 --name x --resume"


def test_command_line_can_be_typed_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", [os.fspath("/usr/bin/vrgd"), "tune", "--set", "lr=1 2"])
    assert cli.command_line("tune") == "python -m vrgd_ray.tune --set 'lr=1 2'"
