"""The ``graphsink`` command as a user runs it: in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

TIMING_KEYS = {
    "load_s", "warmup_s", "process_s", "ttft_ms", "tpot_ms", "decode_ms", "decode_mean_ms",
    "forward_tokens_per_s", "generate_tokens_per_s", "bandwidth_fraction",
}  # fmt: skip


def graphsink(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphsink", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def test_run_writes_the_documented_json(recipes: Path, sample_directory: Path, tmp_path: Path) -> None:
    """Schema, consistency of the figures, and a sensible answer on standard output."""
    report_file = tmp_path / "report.json"
    result = graphsink(
        "run", recipes / "smollm2_135m.yaml", "--prompt", "What is the capital of France?",
        "--set", f"model_config.model_path={sample_directory}", "--set", "scheduler_config.max_new_tokens=24",
        "--json", report_file,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert "TPOT proxy" in result.stdout
    report = json.loads(report_file.read_text())
    assert report["schema"] == "graphsink.run/1"
    assert report["exe_mode"] == "eager"
    assert report["recipe"]["scheduler_config"]["max_new_tokens"] == 24
    assert set(report["machine"]) == {"cpu", "isa", "threads", "read_bandwidth_gbps", "torch", "graphsink"}
    timing = report["timing"]
    assert set(timing) >= TIMING_KEYS
    (request,) = report["requests"]
    assert request["prompt"] == "What is the capital of France?"
    assert request["finish_reason"] == "stop"
    assert "Paris" in request["text"]
    tokens = len(request["token_ids"])
    # One token comes from the prefill, each other from a decode step.
    assert len(timing["decode_ms"]) == tokens - 1
    assert timing["tpot_ms"] == pytest.approx(sum(timing["decode_ms"]) / (tokens - 1))
    forward_s = (timing["ttft_ms"] + sum(timing["decode_ms"])) / 1e3
    assert timing["forward_tokens_per_s"] == pytest.approx(tokens / forward_s)
    assert timing["generate_tokens_per_s"] < timing["forward_tokens_per_s"]
    assert timing["process_s"] > timing["load_s"] + timing["warmup_s"] + forward_s
    gbps = report["machine"]["read_bandwidth_gbps"]
    weights = report["memory"]["weights_mib"] * 2**20
    reached = weights / (timing["decode_mean_ms"] / 1e3) / 1e9
    assert timing["bandwidth_fraction"] == pytest.approx(reached / gbps, rel=0.05)
    assert report["memory"]["peak_rss_mib"] > report["memory"]["weights_mib"]
    # 30 layers of a Llama: 30 operators and more each.
    assert report["counters"]["tasks_per_step"] > 900
    assert report["counters"]["fallbacks"] == {}
    assert (report["counters"]["replays"], report["counters"]["graphs_compiled"]) == (0, 0)


def test_quiet_prints_the_text_and_nothing_else(recipes: Path) -> None:
    """For scripts: standard output is the generated tokens, standard error is empty."""
    recipe = recipes / "families" / "llama.yaml"
    result = graphsink("run", recipe, "--quiet", "--set", "model_config.threads=1")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line]
    assert len(lines) == 2
    assert all(token.isdigit() for line in lines for token in line.split())
    assert result.stderr == ""


def test_json_on_stdout_is_only_json(recipes: Path) -> None:
    """``--json -`` can be piped into a program."""
    result = graphsink(
        "run", recipes / "families" / "llama.yaml", "--json", "-", "--set", "model_config.threads=1"
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [request["text"] for request in report["requests"]] == [None, None]
    assert report["timing"]["ttft_ms"] > 0


def test_raw_leaves_the_template_out(recipes: Path, sample_directory: Path) -> None:
    """``--raw`` gives the tokenizer's own encoding of the prompt."""
    counts = []
    for extra in ([], ["--raw"]):
        result = graphsink(
            "run", recipes / "smollm2_135m.yaml", "-p", "Hello there", "--json", "-", *extra,
            "--set", f"model_config.model_path={sample_directory}",
            "--set", "scheduler_config.max_new_tokens=2",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        counts.append(json.loads(result.stdout)["requests"][0]["prompt_tokens"])
    assert counts[1] == 2
    assert counts[0] > 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "model_config.exe_mod=eager"], "did you mean 'model_config.exe_mode'|exe_mode"),
        (["--set", "model_config.exe_mode=capture"], "not built yet"),
        (["--set", "parallel_config.world_size=2"], "not yet supported"),
        (["--prompt", ""], "empty"),
        (["--json", "does/not/exist.json"], "cannot be written: No such file"),
        (["--set", "scheduler_config.max_new_tokens=0"], "max_new_tokens"),
    ],
)
def test_wrong_input_exits_with_2(recipes: Path, arguments: list[str], words: str) -> None:
    """A message on standard error, nothing on standard output, no traceback."""
    result = graphsink("run", recipes / "families" / "llama.yaml", *arguments)
    assert result.returncode == 2, result.stderr
    assert re.search(words, result.stderr)
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_prompt_too_long_is_an_error_only_if_nothing_fits(recipes: Path) -> None:
    """Exit code 1 when no prompt was served, 0 when others were; the report has both."""
    recipe = recipes / "families" / "llama.yaml"
    limits = ["--set", "scheduler_config.max_prefill_tokens=10", "--set", "model_config.threads=1"]
    only_long = ["--set", "data_config.prompts=[[3,3,3,3,3,3,3,3,3,3,3]]"]
    both = ["--set", "data_config.prompts=[[3,3,3,3,3,3,3,3,3,3,3],[4,5]]"]
    for extra, code in ((only_long, 1), (both, 0)):
        result = graphsink("run", recipe, "--json", "-", *limits, *extra)
        assert result.returncode == code, result.stderr
        report = json.loads(result.stdout)
        assert report["requests"][0]["finish_reason"] == "prompt_too_long"
        assert "prompt_too_long" in result.stderr
        assert "11" in report["requests"][0]["error"]


def test_ctrl_c_keeps_partial_output(recipes: Path, sample_directory: Path, tmp_path: Path) -> None:
    """SIGINT while generating: exit code 130, and the report has what was generated."""
    report_file = tmp_path / "partial.json"
    command = [
        sys.executable, "-m", "graphsink", "run", str(recipes / "smollm2_135m.yaml"), "--quiet",
        "--prompt", "Tell me a very long story.", "--json", str(report_file),
        "--set", f"model_config.model_path={sample_directory}",
        "--set", "scheduler_config.max_new_tokens=4000",
        "--set", "scheduler_config.ignore_eos=true",
    ]  # fmt: skip
    # Unbuffered: what a reader has taken in advance would be missing from `communicate`.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors.decode()
    report = json.loads(report_file.read_text())
    assert report["interrupted"] is True
    (request,) = report["requests"]
    assert request["finish_reason"] == "error"
    assert request["error"] == "interrupted"
    assert 1 <= len(request["token_ids"]) < 4000
    assert (first + rest).decode().strip() == request["text"].strip()


def test_text_is_streamed(recipes: Path, sample_directory: Path) -> None:
    """The first characters are there long before the last."""
    command = [
        sys.executable, "-m", "graphsink", "run", str(recipes / "smollm2_135m.yaml"), "--quiet",
        "--prompt", "Count from one to fifty.", "--set", f"model_config.model_path={sample_directory}",
        "--set", "scheduler_config.ignore_eos=true", "--set", "scheduler_config.max_new_tokens=60",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        arrivals = []
        while piece := os.read(process.stdout.fileno(), 4096):
            arrivals.append((time.monotonic(), piece))
    assert process.returncode == 0
    assert len(arrivals) > 20


def test_version_and_help() -> None:
    """Every command has a help text."""
    assert graphsink("--version").stdout.startswith("graphsink 0.")
    help_text = graphsink("--help").stdout
    for command in ("run", "sample", "doctor", "recipe"):
        assert command in help_text
    assert "--set" in graphsink("run", "--help").stdout


def test_commands_start_without_torch(tmp_path: Path) -> None:
    """`doctor` says what is wrong with a broken PyTorch; `--version` and wrong recipes do not need it."""
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libtorch_cpu.so: no such file')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert graphsink("--version", env=environment).returncode == 0
    missing = graphsink("run", tmp_path / "none.yaml", env=environment)
    assert missing.returncode == 2
    assert "none.yaml" in missing.stderr
    doctor = graphsink("doctor", env=environment)
    assert doctor.returncode == 1
    assert "libtorch_cpu.so" in doctor.stdout
    assert "Traceback" not in doctor.stderr


def test_the_report_survives_a_reader_that_goes_away(recipes: Path, tmp_path: Path) -> None:
    """`graphsink run … | head -c 1`: no traceback, and the report that was asked for is complete."""
    report_file = tmp_path / "report.json"
    command = [
        sys.executable, "-m", "graphsink", "run", str(recipes / "families" / "llama.yaml"),
        "--set", "model_config.threads=1", "--json", str(report_file),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert "Traceback" not in errors
    assert process.returncode == 0
    assert len(json.loads(report_file.read_text())["requests"]) == 2


def test_a_terminal_without_unicode_does_not_end_the_run(recipes: Path, sample_directory: Path) -> None:
    """Characters that cannot be shown are replaced."""
    result = graphsink(
        "run", recipes / "smollm2_135m.yaml", "--prompt", "Say: café 😀", "--raw",
        "--set", f"model_config.model_path={sample_directory}",
        "--set", "scheduler_config.max_new_tokens=4",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "TPOT proxy" in result.stdout


def test_an_unwritable_report_is_refused_before_the_run(recipes: Path) -> None:
    """Not after minutes of generating."""
    result = graphsink("run", recipes / "families" / "llama.yaml", "--json", "/proc/report.json")
    assert result.returncode == 2
    assert "cannot be written" in result.stderr
    assert result.stdout == ""


def test_output_path_gets_a_report(recipes: Path, tmp_path: Path) -> None:
    """Named after model and mode; the directory is made."""
    result = graphsink(
        "run", recipes / "families" / "llama.yaml", "--quiet", "--set", "model_config.threads=1",
        "--set", f"model_config.output_path={tmp_path / 'reports'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (report_file,) = (tmp_path / "reports").iterdir()
    assert report_file.name == "llama_tiny.eager.json"
    assert json.loads(report_file.read_text())["model"] == "llama_tiny"


def test_ctrl_c_while_loading(recipes: Path) -> None:
    """Exit code 130 and no traceback, whatever was going on."""
    command = [sys.executable, "-m", "graphsink", "run", str(recipes / "qwen3_0_6b_random.yaml")]
    for delay in (1.0, 2.5):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors.decode()
        assert "Traceback" not in errors.decode()
