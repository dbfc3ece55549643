"""The literate script of the runtime runs as it is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "how_it_works" / "runtime.py"


def test_the_script_runs(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    command = [sys.executable, "-W", "error", str(SCRIPT), str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("done\n")
    assert "kernel 'gather' failed with code 7" in done.stdout
    assert len(json.loads(trace.read_text())["traceEvents"]) > 2000
