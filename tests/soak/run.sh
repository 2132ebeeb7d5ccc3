#!/usr/bin/env bash
# The long form of a reliability test, by its number in docs/testing.md.  Not part of ctest.
#
#   tests/soak/run.sh 16 [CASES]    XPTYCHOD_BIN=build/tests/bin unless it is set
set -euo pipefail
cd "$(dirname "$0")/../.."
export XPTYCHOD_BIN=${XPTYCHOD_BIN:-$PWD/build/tests/bin}
case "${1:-}" in
16)
    # schemathesis is PyPI's, in an environment of its own
    venv=${XPTYCHOD_SOAK_VENV:-$PWD/build/soak-venv}
    if [ ! -x "$venv/bin/st" ]; then
        /usr/bin/python3 -m venv "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check 'schemathesis==3.39.16' 'hypothesis==6.108.5'
    fi
    exec /usr/bin/python3 tests/soak/openapi_fuzz.py "$venv/bin/st" "${2:-20000}"
    ;;
*)
    echo "usage: tests/soak/run.sh 16 [CASES]" >&2
    exit 2
    ;;
esac
