"""Options of a campaign: the CLI's options are its fields."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from servegrid.cli.comparing import compare
from servegrid.domain.errors import UserError
from servegrid.plan.options import SweepOptions, with_sweep_options

GIVEN = {
    "models": ("a", "b"),
    "variant": "full",
    "profiles": ("card", "other"),
    "workers": True,
    "queue": "nightly",
    "random_weights": True,
    "generator": "client",
    "server": "other",
    "url": "grpcs://u:1",
    "ca_file": "ca",
    "headers_file": "h",
    "triton_release": "25.02",
    "server_folder": "t",
    "backend_directory": "b",
    "formats": ("onnx",),
    "precisions": ("fp16", "fp32"),
    "accelerators": ("trt",),
    "instances": (1, 2),
    "max_batch_size": 2,
    "max_concurrency": 3,
    "request_count": 4,
    "window_s": 0.5,
    "fixed_points": True,
    "request_rates": (50.0, 0.5),
    "distribution": "constant",
    "slo": "p99=50ms",
    "protocol": "http",
    "shared_memory": "none",
    "input_data": "random",
    "keep_inputs": True,
    "params": ("a=1", "b=2"),
    "sets": ("c=1", "d=2"),
    "plugin_paths": ("c", "d"),
}
OTHER_MODELS = {
    **{"onnx": "f", "shapes": ("x=1,2",), "samples": "s", "name": "net"},
    **{"labels": "l", "metric": "f1:y", "threshold": -0.5, "drop": 0.25},
}
ARGUMENTS = (
    "--model a --model b --variant full --profile card --profile other --workers --queue nightly "
    "--random-weights --generator client --server other "
    "--format onnx --precision fp16 --precision fp32 --accelerator trt --instances 1,2 --max-batch-size 2 "
    "--url grpcs://u:1 --ca-file ca --headers-file h --triton-release 25.02 "
    "--server-folder t --backend-directory b "
    "--max-concurrency 3 --request-count 4 --window-s 0.5 --fixed-points --request-rate 50 "
    "--request-rate 0.5 --distribution constant --slo p99=50ms --protocol http --shared-memory none "
    "--input-data random --keep-inputs "
    "--param a=1 --param b=2 --set c=1 --set d=2 --plugin-path c --plugin-path d"
)


def called(*arguments: str) -> SweepOptions:
    seen: list[SweepOptions] = []
    app = typer.Typer()
    app.command()(with_sweep_options(lambda options: seen.append(options)))
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return seen[0]


def test_every_field_is_an_option() -> None:
    alone = {
        "torchscript",
        "torch_export",
        "savedmodel",
        "keras",
        "hf",
        "model_dir",
    }  # they exclude the others
    of_savedmodel = {"savedmodel": "f", "signature": "classify"}
    assert {*GIVEN, *OTHER_MODELS, *alone, *of_savedmodel, "task"} == set(SweepOptions.model_fields)
    assert called(*ARGUMENTS.split()) == SweepOptions.model_validate(GIVEN)
    words = SweepOptions.model_validate(GIVEN).words
    assert called(*words, "--workers", "--queue", "nightly") == SweepOptions.model_validate(GIVEN)
    metric = ("--labels", "l", "--metric", "f1:y", "--threshold", "-0.5", "--drop", "0.25")
    file = called("--onnx", "f", "--shape", "x=1,2", "--samples", "s", "--name", "net", *metric)
    assert file == SweepOptions.model_validate(OTHER_MODELS) == called(*file.words)
    found = called("--savedmodel", "f", "--signature", "classify")
    assert found == SweepOptions.model_validate(of_savedmodel) == called(*found.words)
    folder = called("--hf", "f", "--task", "fill-mask")
    assert folder == SweepOptions.model_validate({"hf": "f", "task": "fill-mask"}) == called(*folder.words)
    for name in alone:
        assert called(f"--{name.replace('_', '-')}", "f") == SweepOptions.model_validate({name: "f"})


def test_paths_become_absolute_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    params = ("checkpoint=data/../data", "org=a/b", "hidden=8")
    found = SweepOptions.model_validate(GIVEN | {"params": params}).anywhere()
    assert (found.ca_file, found.headers_file) == (str(tmp_path / "ca"), str(tmp_path / "h"))
    assert found.plugin_paths == (str(tmp_path / "c"), str(tmp_path / "d"))
    assert found.params == (f"checkpoint={tmp_path}/data/../data", "org=a/b", "hidden=8")
    monkeypatch.chdir("/")
    assert found.anywhere() == found
    assert SweepOptions().anywhere().model_fields_set == set()


def test_missing_options_have_defaults() -> None:
    assert called() == SweepOptions()


def test_options_of_earlier_campaigns_hold_one_number_of_instances() -> None:
    assert SweepOptions.model_validate({"instances": 2}).instances == (2,)


@pytest.mark.parametrize("given", ["", "1,", "2,2", "two", "1.5"])
def test_wrong_numbers_of_instances_are_refused(given: str) -> None:
    with pytest.raises(UserError, match="instances"):
        called(f"--instances={given}")


def test_error_of_a_wrong_value_lists_the_valid_ones() -> None:
    with pytest.raises(UserError, match="generator: Input should be 'auto', 'perf_analyzer' or 'client'"):
        called("--generator", "cleint")


@pytest.mark.parametrize(
    ("flag", "given", "near"),
    [
        ("--generator", "cleint", "'client'"),
        ("--format", "onx", "'onnx'"),
        ("--precision", "fp61", "'fp16'"),
        ("--accelerator", "trtt", "'trt'"),
        ("--protocol", "gprc", "'grpc'"),
        ("--shared-memory", "sytem", "'system'"),
        ("--distribution", "possion", "'poisson'"),
    ],
)
def test_error_of_a_misspelt_value_names_the_nearest(flag: str, given: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        called(flag, given, *(("--request-rate", "5") if flag == "--distribution" else ()))
    assert flag.strip("-").replace("-", "_") in str(caught.value)
    assert f"did you mean {near}" in str(caught.value)


@pytest.mark.parametrize("slo", ["50ms", "p99", "p98=50ms", "p99=50", "p99=0ms", "p99<50ms", "p99=-1ms", ""])
def test_error_of_a_wrong_objective_has_an_example(slo: str) -> None:
    with pytest.raises(UserError, match=r"^slo: .*write a statistic .*p99=50ms") as caught:
        called("--slo", slo)
    assert repr(slo) in str(caught.value)


def test_a_distribution_without_a_rate_is_refused() -> None:
    with pytest.raises(UserError, match=r"--distribution.*--request-rate.*--slo"):
        called("--distribution", "constant")
    for more in (("--request-rate", "5"), ("--slo", "p99=1s")):
        assert called("--distribution", "constant", *more).distribution == "constant"


@pytest.mark.parametrize("rate", ["0", "-1", "fast"])
def test_wrong_rate_is_refused(rate: str) -> None:
    with pytest.raises(UserError, match=r"request_rates\.0: "):
        called("--request-rate", rate)


def test_option_without_effect_is_refused() -> None:
    with pytest.raises(UserError, match="--queue goes with --workers"):
        called("--queue", "nightly")
    for option in (("--pairs", "3"), ("--profile", "cpu")):
        app = typer.Typer()
        app.command()(compare)
        result = CliRunner().invoke(app, ["a", "b", *option])
        assert str(result.exception).startswith("--pairs and --profile go with --run")


def test_help_describes_each_option() -> None:
    app = typer.Typer()
    app.command()(with_sweep_options(lambda options: None))
    text = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["--help"]).output
    for field in SweepOptions.model_fields.values():
        assert field.description and field.description in text


def test_subject_names_the_models_or_the_file() -> None:
    assert SweepOptions.model_validate({"models": ("a", "b"), "variant": "full"}).subject == "a, b (full)"
    assert SweepOptions(onnx="x/m.onnx").subject == "m.onnx"
    assert SweepOptions(onnx="x/m.onnx", name="net").subject == "net"
    assert SweepOptions(model_dir="/y/own").subject == "own (tiny)"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--onnx f --labels l", ("--labels", "--metric")),
        ("--onnx f --threshold 1", ("--threshold", "--metric")),
        ("--onnx f --drop 1", ("--drop", "--metric")),
        ("--onnx f --metric f1 --labels l", ("--labels", "--samples")),
        ("--model a --metric f1", ("--metric", "--model-dir")),
        ("--model-dir a --metric f1 --random-weights", ("--random-weights", "--metric")),
    ],
)
def test_a_metric_without_what_it_goes_with_is_refused(arguments: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        called(*arguments.split())
    assert [part for part in named if part not in str(error.value)] == []
