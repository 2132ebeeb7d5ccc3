"""Copies a source of engine/cuda with one deliberate fault.

    apply.py MUTATION SOURCE_DIR OUT_DIR

A mutation is a text: lines `key: value` up to the first line of dashes, then what is replaced, a line of dashes, and
what takes its place.

    file:    the file that is changed
    builds:  the files that are compiled anew, where `file` is a header; they are copied beside it
    suite:   the program of the backend suite that must fail
    devices: how many there are, 8 where it is not said; a job of several shards shares them
    fault:   what is wrong, in a sentence

What is replaced must occur exactly once, so that a mutation that the sources have outgrown is noticed.
"""

import pathlib
import sys


def parse(path):
    head, old, new = path.read_text().split("\n----\n")
    keys = dict(line.split(":", 1) for line in head.splitlines())
    return {key.strip(): value.strip() for key, value in keys.items()}, old, new.rstrip("\n")


def main(mutation, source, out):
    keys, old, new = parse(pathlib.Path(mutation))
    text = (pathlib.Path(source) / keys["file"]).read_text()
    if text.count(old) != 1:
        sys.exit(f"{mutation}: what it replaces occurs {text.count(old)} times in {keys['file']}; adapt it to the sources")
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for name in keys.get("builds", "").split():
        (out / name).write_text((pathlib.Path(source) / name).read_text())
    (out / keys["file"]).write_text(text.replace(old, new))


if __name__ == "__main__":
    main(*sys.argv[1:])
