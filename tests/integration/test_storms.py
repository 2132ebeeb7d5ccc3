"""Short forms of the reliability tests that are storms; tests/soak has the long ones, docs/testing.md says what is left out."""

import pytest

import cancel_storm
import clock_jumps
import idempotency
import kill_storm
import mixed_load
import reload_storm
import stop_storm


def test_acknowledged_jobs_survive_kills_of_the_broker(tmp_path):
    """Test 1."""
    counts = kill_storm.run(tmp_path, 6)
    assert counts["jobs"] > 10, counts


def test_a_cancel_ends_a_job_once_and_soon_in_every_state(tmp_path):
    """Test 11."""
    storm = cancel_storm.run(tmp_path, 1, large=12)
    assert storm.late == [] and storm.states["held"] and storm.states["queued"] and storm.states["running"], (storm.late, storm.states)


def test_a_key_makes_one_job_whatever_is_lost(tmp_path):
    """Test 18."""
    assert idempotency.run(tmp_path, 1)["keys"] == 5


def test_a_stop_in_the_middle_of_everything_loses_nothing(tmp_path):
    """Test 19."""
    counts, times = stop_storm.run(tmp_path, 1)
    assert counts["acknowledged"] >= 20 and times[0] < stop_storm.STOP_S


def test_a_storm_of_reloads_is_never_half_applied(tmp_path):
    """Test 20."""
    storm = reload_storm.run(tmp_path, 3)
    assert storm.counts["jobs"] > 0 and storm.counts["signals"] > 20, storm.counts


def test_mixed_load_leaves_nothing_behind(tmp_path):
    """Test 25: what must hold at any length; slopes need an hour."""
    sampler = mixed_load.run(tmp_path, 12, jobs_a_second=8, sample_s=0.5, kill_s=4, rotate_s=3, reload_s=2)
    counts = sampler.load.counts
    assert counts["jobs"] > 10 and counts["workers killed"] > 0 and counts["rotations"] > 0, counts


def test_jumps_of_the_wall_clock_fire_no_deadline(tmp_path):
    """Test 27."""
    if not clock_jumps.library():
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    assert clock_jumps.run(tmp_path, 2, 0.5)["jumps"] == 2
