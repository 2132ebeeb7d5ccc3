"""Damaged state folders: the service starts, or refuses and names the file; test 7 of docs/testing.md.

tests/soak/07_damage.py does a thousand of them.
"""

import pytest

import damage
import xptychod

SEEDS = range(6)


@pytest.fixture(scope="module")
def template(tmp_path_factory, scan_file, slow_scan_file):
    judge, xptychod.Api.contract = xptychod.Api.contract, None  # what a damaged log says is in no contract
    yield damage.Template(tmp_path_factory.mktemp("template"), scan_file, slow_scan_file)
    xptychod.Api.contract = judge


@pytest.mark.parametrize("kind", damage.KINDS)
def test_a_damaged_file_is_survived_or_named(template, tmp_path, kind):
    for seed in SEEDS:
        damage.Variant(template, tmp_path / f"{kind}{seed}", seed, kind).run()


@pytest.mark.parametrize("what", ["queue.db", "queue.db-wal", "both"])
def test_a_lost_file_is_no_silent_empty_queue(template, tmp_path, what):
    variant = damage.Variant(template, tmp_path / "lost", 0, "done.json")
    for name in ("queue.db", "queue.db-wal") if what == "both" else (what,):
        (variant.daemon.state / name).unlink()
    variant.kind, variant.what = "queue.db", f"{what} is gone"
    assert variant.run() == ("started" if what == "queue.db-wal" else "refused")
