# Shared by the scripts of this folder; source it. After `set_up`, "$PYTHON" is the interpreter of the
# virtual environment, with graphsink installed in editable mode and its native module built.
#
# GRAPHSINK_VENV                 directory of the virtual environment (default: .venv in the repository)
# GRAPHSINK_WARNINGS_AS_ERRORS   ON: compiler warnings fail the build (.ci/run sets it)

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$(realpath -m "${GRAPHSINK_VENV:-$ROOT/.venv}")"
PYTHON="$VENV/bin/python"
CONSTRAINTS="$ROOT/constraints.txt"

say() { printf '== %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The first interpreter on PATH that is new enough.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is needed (Debian and Ubuntu: apt-get install python3 python3-venv)"
}

# One line per thing that makes an installation out of date. Python files are not among them, because
# the installation is editable; the version is read when the package is built.
stamp() {
    (
        cd "$ROOT"
        printf '%s\n' "$ROOT" "$VENV"
        "$PYTHON" --version
        grep '^__version__' src/graphsink/__init__.py
        find pyproject.toml CMakeLists.txt constraints.txt csrc -type f -print0 | sort -z | xargs -0 sha256sum
    ) | sha256sum
}

pip_install() { "$PYTHON" -m pip install --quiet --disable-pip-version-check --constraint "$CONSTRAINTS" "$@"; }

# CMake and Ninja come from pip only where the system has none that is new enough.
install_build_tools() {
    local tools=(scikit-build-core nanobind)
    local version
    version="$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p' || true)"
    if [ -z "$version" ] || [ "$(printf '3.20\n%s\n' "$version" | sort -V | head -n 1)" != 3.20 ]; then
        tools+=(cmake)
    fi
    command -v ninja >/dev/null || tools+=(ninja)
    pip_install "${tools[@]}"
}

set_up() {
    # A venv that was interrupted, or made without the system's python3-venv, has no pip: make it anew.
    if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
        local python
        python="$(find_python)"
        say "creating $VENV"
        rm -rf "$VENV"
        "$python" -m venv "$VENV" ||
            fail "cannot create a virtual environment (Debian and Ubuntu: apt-get install python3-venv)"
    fi
    if [ "$(cat "$VENV/graphsink.stamp" 2>/dev/null || true)" = "$(stamp)" ]; then
        return
    fi
    command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null ||
        fail "a C++20 compiler is needed (Debian and Ubuntu: apt-get install g++)"
    "$PYTHON" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        fail "Python's headers are needed (Debian and Ubuntu: apt-get install python3-dev)"
    say "installing graphsink and its dependencies into $VENV"
    rm -f "$VENV/graphsink.stamp"
    install_build_tools
    # Without build isolation: pip would fetch the build requirements again, outside the constraints.
    pip_install --no-build-isolation \
        --config-settings=cmake.define.GRAPHSINK_WARNINGS_AS_ERRORS="${GRAPHSINK_WARNINGS_AS_ERRORS:-OFF}" \
        --editable "$ROOT[dev]"
    stamp >"$VENV/graphsink.stamp"
}
