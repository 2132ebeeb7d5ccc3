#!/usr/bin/env bash
# The long form of a reliability test, by its number in docs/testing.md.  Not part of ctest.
#
#   tests/soak/run.sh NUMBER [options]     for instance: tests/soak/run.sh 16 20000
#   tests/soak/run.sh                      says which there are
#
# XPTYCHOD_BIN names the folder of the programs, build/tests/bin unless it is set.
set -euo pipefail
cd "$(dirname "$0")/../.."
export XPTYCHOD_BIN=${XPTYCHOD_BIN:-$PWD/build/tests/bin} PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$PWD/tests/support${PYTHONPATH:+:$PYTHONPATH}
usage() {
    echo "usage: tests/soak/run.sh NUMBER [options], with NUMBER one of:"
    for file in tests/soak/[0-9][0-9]_*.py; do
        echo "    $(basename "$file" .py | sed 's/_/ /g')"
    done
}
if ! [[ "${1:-}" =~ ^[0-9]{1,2}$ ]]; then
    usage >&2
    exit 2
fi
script=$(printf 'tests/soak/%02d_' "$((10#$1))")
shift
for file in "$script"*.py; do
    if [ -e "$file" ]; then
        exec /usr/bin/python3 "$file" "$@"
    fi
done
usage >&2
exit 2
