#!/usr/bin/env bash
# The service under load: figures for docs/performance.md, each with the bound that it must keep.
#
#   tests/load/run.sh [long] [PART...]    all parts or those named; 25 minutes, on an idle machine
#   tests/load/run.sh short [PART...]     small numbers, seconds a part; what ctest runs
#
#   parts: submits streams jobs cost slow full
#
# XPTYCHOD_BIN names the folder of the programs, build/tests/bin unless it is set; a release build gives the
# figures.  Exit status 1 when a bound is missed, 77 when nothing could be measured here.
set -euo pipefail
cd "$(dirname "$0")/../.."
export XPTYCHOD_BIN=${XPTYCHOD_BIN:-$PWD/build/tests/bin} PYTHONDONTWRITEBYTECODE=1
exec "${XPTYCHOD_PYTHON:-/usr/bin/python3}" tests/load/load.py "$@"
