"""The worker's modes for the command line: run, simulate, compare, bench."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib

import h5py
import numpy as np
import pytest

import xptychod
from conftest import DATA

OK, USAGE, REFUSED, FAILED, CANCELLED = 0, 2, 3, 4, 5
LINE = re.compile(r"iteration +(\d+)   data error (\d+\.\d{6})   modes (\d+)")


def worker(*arguments, **options):
    return xptychod.run("xptycho-worker", *arguments, **options)


def known_job(**changes):
    scan = str(DATA / "tiny_known.h5")
    return {"scan": {"path": scan}, "probe": {"path": scan, "dataset": "/truth/probe"},
            "model": {"object_shape": [64, 64], "object_origin_m": [0.0, 0.0]},
            "recon": {"iterations": 6, "object_data_fit": 0.5, "probe_weight_exponent": 1.5}, **changes}


@pytest.fixture
def job_file(tmp_path):
    def write(document):
        path = tmp_path / "job.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path
    return write


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A noisy scan of 12 x 12 positions, and what the simulator says of it."""
    path = tmp_path_factory.mktemp("simulated") / "scan.h5"
    done = worker("simulate", "--output", path, "--frames-side", "64", "--grid", "12x12", "--json")
    assert done.returncode == OK, done
    return path, json.loads(done.stdout)


def nrmse(result, scan):
    done = worker("compare", result, f"{scan}:/truth/object", "--json")
    assert done.returncode == OK, done
    return json.loads(done.stdout)


# ------------------------------------------------------------------------------------- simulate


def test_simulate_tells_a_wrong_flag_from_a_file_that_exists(simulated, tmp_path):
    scan, _ = simulated
    for flags in (("--frames-side", "127"), ("--frames-side", "x"), ("--modes", "0"), ("--grid", "0x3"), ("--step", "1000"),
                  ("--jitter", "1000"), ("--defocus-m", "1"), ("--object", "moon"), ("--pattern", "line"), ("--photons", "-1"),
                  ("--grid", "3x3", "--positions", "9"), ("stray",), ("--wrong",)):
        done = worker("simulate", "--output", tmp_path / "none.h5", *flags)
        assert done.returncode == USAGE and "simulate" in done.stderr, (flags, done)
    assert worker("simulate").returncode == USAGE
    assert not (tmp_path / "none.h5").exists()
    before = scan.read_bytes()
    done = worker("simulate", "--output", scan)
    assert done.returncode == REFUSED and "exists" in done.stderr, done
    assert scan.read_bytes() == before


# ------------------------------------------------------------------------------------------ run


def test_run_prints_a_line_an_iteration_and_writes_the_result(job_file, tmp_path):
    out = tmp_path / "result.h5"
    done = worker("run", job_file(known_job(output={"path": str(out)})))
    assert done.returncode == OK, done
    lines = done.stdout.splitlines()
    assert [int(LINE.fullmatch(line)[1]) for line in lines[:-1]] == [1, 2, 3, 4, 5, 6]
    assert lines[-1].startswith(f"# result '{out}': 6 iterations")
    with h5py.File(out) as f:
        errors = f["run/data_error"][...]
        assert f["sample/object"].shape == (64, 64)
        assert f["run"].attrs["partial"] == 0
        rows = {row[0].decode(): row[1].decode() for row in f["run/parameters"][...]}
    assert [f"{e:.6f}" for e in errors] == [LINE.fullmatch(line)[2] for line in lines[:-1]]
    assert rows["probe"] == "known" and rows["mode_schedule"] == "()" and rows["iterations"] == "6"


def test_only_reported_iterations_are_printed_and_the_others_are_nan(job_file, tmp_path):
    out = tmp_path / "result.h5"
    job = known_job(output={"path": str(out)})
    job["recon"] = {"iterations": 7, "report_every": 3}
    done = worker("run", job_file(job))
    assert [int(LINE.fullmatch(line)[1]) for line in done.stdout.splitlines()[:-1]] == [3, 6, 7]
    with h5py.File(out) as f:
        assert list(np.isfinite(f["run/data_error"][...])) == [False, False, True, False, False, True, True]


def test_json_gives_the_events_of_a_job_without_holes(job_file, tmp_path):
    out = tmp_path / "result.h5"
    done = worker("run", job_file(known_job(output={"path": str(out)})), "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["iter"] for e in events if e["type"] == "iter"] == [1, 2, 3, 4, 5, 6]
    assert [e["state"] for e in events if e["type"] == "state"] == ["running"]
    end = events[-1]
    assert (end["type"], end["state"], end["reason"]) == ("end", "succeeded", "")
    assert end["result"]["bytes"] == out.stat().st_size
    assert end["result"]["devices"] == ["cpu"] and end["result"]["object_shape"] == [64, 64]


def test_quiet_prints_nothing_and_standard_input_is_a_job_file(tmp_path):
    out = tmp_path / "result.h5"
    done = subprocess.run([xptychod.program("xptycho-worker"), "run", "-", "--quiet"], capture_output=True, text=True,
                          input=json.dumps(known_job(output={"path": str(out)})), timeout=60, check=False)
    assert done.returncode == OK and done.stdout == "" and done.stderr == ""
    assert out.exists()


def test_output_flag_is_relative_to_where_it_was_given(job_file, tmp_path):
    done = worker("run", job_file(known_job()), "--output", "here.h5", cwd=tmp_path)
    assert done.returncode == OK, done
    assert (tmp_path / "here.h5").exists()


def test_reader_of_the_lines_that_leaves_does_not_end_the_job(job_file, tmp_path):
    out = tmp_path / "result.h5"
    command = [xptychod.program("xptycho-worker"), "run", str(job_file(known_job(output={"path": str(out)})))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == OK
    assert out.exists()


def test_stages_are_joined(job_file, tmp_path):
    out = tmp_path / "result.h5"
    job = known_job(output={"path": str(out)})
    job["recon"] = [{"iterations": 4}, {"algorithm": "refine_positions"}, {"iterations": 3}]
    done = worker("run", job_file(job), "--json")
    assert done.returncode == OK, done
    told = [(e["stage"], e["iter"]) for e in map(json.loads, done.stdout.splitlines()) if e["type"] == "iter"]
    assert told == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (2, 1), (2, 2), (2, 3)]
    with h5py.File(out) as f:
        assert f["run/data_error"].shape == (8,)
        assert f["run/position_gain"].shape == (49,)


def test_a_job_that_ends_with_a_search_keeps_coverage_and_picture(job_file, tmp_path):
    results = {}
    for name, stages in (("plain", [{"iterations": 4}]), ("searched", [{"iterations": 4}, {"algorithm": "refine_positions"}])):
        out = tmp_path / f"{name}.h5"
        done = worker("run", job_file(known_job(output={"path": str(out)}) | {"recon": stages}), "--preview", tmp_path / name)
        assert done.returncode == OK, done
        with h5py.File(out) as f:
            results[name] = f["run/coverage"][...], json.loads((tmp_path / name / "preview.json").read_text())["items"]
    (plain, items), (searched, again) = results["plain"], results["searched"]
    assert abs(searched - plain).max() <= 1e-6 * plain.max()
    assert again["object_phase"]["range"] == pytest.approx(items["object_phase"]["range"], abs=1e-5)


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("change, pointer, said", [
    ({"reccon": {}}, "/reccon", "recon"),
    ({"recon": {"iterationz": 3}}, "/recon/iterationz", "iterations"),
    ({"recon": {"relaxation": 7}}, "/recon/relaxation", "0 to 1"),
    ({"scan": {"path": "relative.h5"}}, "/scan/path", "absolute"),
    ({"output": {}}, "/output/path", "--output"),
    ({"scan": {"path": "/nonexistent/scan.h5"}}, "/scan/path", "does not exist"),
    ({"probe": {"path": "/nonexistent/probe.h5"}}, "/probe/path", "does not exist"),
    ({"devices": {"num_devices": 9}}, "/devices/num_devices", "9 devices"),
    ({"devices": {"devices": ["cuda:0"]}}, "/devices", "CUDA"),
    ({"devices": {"devices": ["cpu"] * 50}}, "/devices", "49"),
    ({"model": {"object_shape": [20, 64], "object_origin_m": [0.0, 0.0]}}, "/model/object", "rows 0 to 19"),
])
def test_refusals_name_the_member_and_exit_3(job_file, tmp_path, change, pointer, said):
    job = known_job(output={"path": str(tmp_path / "result.h5")}) | change
    done = worker("run", job_file(job))
    assert done.returncode == REFUSED, done
    assert pointer in done.stderr and said in done.stderr
    assert not (tmp_path / "result.h5").exists()


def test_every_error_is_told_at_once(job_file):
    job = known_job(recon={"iterations": 0, "relaxation": -1, "nonsense": 1}, priority=1000)
    done = worker("run", job_file(job))
    assert done.returncode == REFUSED
    for pointer in ("/recon/iterations", "/recon/relaxation", "/recon/nonsense", "/priority"):
        assert sum(line.startswith(f"xptycho run: {pointer}:") for line in done.stderr.splitlines()) == 1


def test_refusal_as_json_is_a_problem_document(job_file):
    done = worker("run", job_file(known_job(recon={"iterations": 0})), "--output", "x.h5", "--json")
    problem = json.loads(done.stdout)
    assert done.returncode == REFUSED
    assert problem["status"] == 422 and problem["errors"][0]["pointer"] == "/recon/iterations"


def test_what_is_no_job_is_refused(job_file, tmp_path):
    assert worker("run", job_file("{")).returncode == REFUSED
    assert worker("run", job_file("[1]")).returncode == REFUSED
    assert worker("run", tmp_path / "none.json").returncode == REFUSED
    assert worker("run").returncode == USAGE
    assert worker("run", "a.json", "b.json").returncode == USAGE
    assert worker("run", "--wrong").returncode == USAGE
    assert worker("walk").returncode == USAGE


def test_existing_output_is_kept_unless_told(job_file, tmp_path):
    out = tmp_path / "result.h5"
    path = job_file(known_job(output={"path": str(out)}))
    assert worker("run", path).returncode == OK
    before = out.read_bytes()
    done = worker("run", path)
    assert done.returncode == REFUSED and "exists" in done.stderr
    assert out.read_bytes() == before
    assert worker("run", path, "--overwrite").returncode == OK


# -------------------------------------------------------------------------------------- signals


def start_long(job_file, tmp_path, slow_scan_file):
    out = tmp_path / "result.h5"
    job = {"scan": {"path": str(slow_scan_file)}, "recon": {"iterations": 100000}, "output": {"path": str(out)}}
    process = subprocess.Popen([xptychod.program("xptycho-worker"), "run", str(job_file(job))],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
        assert LINE.fullmatch(process.stdout.readline().rstrip("\n"))
    return process, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_keeps_the_last_iteration(job_file, tmp_path, slow_scan_file, number):
    process, out = start_long(job_file, tmp_path, slow_scan_file)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == CANCELLED, errors
    assert "# partial result" in said
    iterations = 3 + sum(bool(LINE.fullmatch(line)) for line in said.splitlines())
    with h5py.File(out) as f:
        assert f["run"].attrs["partial"] == 1
        assert f["run/data_error"].shape == (iterations,)
        assert np.isfinite(f["sample/object"][...]).all()


def test_second_signal_leaves_at_once(job_file, tmp_path, slow_scan_file):
    process, _ = start_long(job_file, tmp_path, slow_scan_file)
    os.kill(process.pid, signal.SIGSTOP)  # both are there before either is looked at
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == CANCELLED


def test_deadline_ends_the_job_as_failed_with_what_there_is(job_file, tmp_path, slow_scan_file):
    out = tmp_path / "result.h5"
    job = {"scan": {"path": str(slow_scan_file)}, "recon": {"iterations": 100000}, "deadline_s": 1,
           "output": {"path": str(out)}}
    done = worker("run", job_file(job), "--json")
    assert done.returncode == FAILED, done
    end = json.loads(done.stdout.splitlines()[-1])
    assert (end["state"], end["reason"]) == ("failed", "deadline")
    assert end["result"]["partial"] is True and out.exists()


# --------------------------------------------------------------------------------- the reader


@pytest.fixture
def lone_worker(tmp_path):
    """A copy of the worker in a folder of its own, where a test can put a reader beside it."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return shutil.copy(xptychod.program("xptycho-worker"), folder / "xptycho-worker")


@pytest.mark.parametrize("script, said", [
    (None, "xptycho-reader was not found"),
    ("exit 7", "without an answer (exit 7)"),
    ("kill -SEGV $$", "died of signal 11"),
    ("head -c 100 /dev/zero >&3; sleep 5", "breaks the rules"),
])
def test_reader_that_fails_is_told_and_exits_4(lone_worker, job_file, tmp_path, script, said):
    if script:
        reader = lone_worker.with_name("xptycho-reader")
        reader.write_text(f"#!/bin/sh\n{script}\n")
        reader.chmod(0o755)
    out = tmp_path / "result.h5"
    done = subprocess.run([lone_worker, "run", job_file(known_job(output={"path": str(out)}))], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == FAILED, done
    assert said in done.stderr
    assert not out.exists()


def test_no_reader_is_left_behind(job_file, tmp_path, slow_scan_file):
    process, _ = start_long(job_file, tmp_path, slow_scan_file)
    children = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "comm="], capture_output=True, text=True).stdout
    process.kill()
    process.communicate(timeout=60)
    assert "xptycho-reader" not in children


# ------------------------------------------------------------------------------------- previews


def png_texts(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    texts, at = {}, 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"tEXt":
            key, value = body.split(b"\0", 1)
            texts[key.decode()] = value.decode()
        at += 12 + length
    return texts


def test_previews_hold_what_the_result_holds(job_file, tmp_path):
    out, folder = tmp_path / "result.h5", tmp_path / "pictures"
    done = worker("run", job_file(known_job(output={"path": str(out)})), "--preview", folder)
    assert done.returncode == OK, done
    index = json.loads((folder / "preview.json").read_text())
    assert (index["stage"], index["iter"]) == (0, 6)
    with h5py.File(out) as f:
        obj, probe = f["sample/object"][...], f["sample/probe"][...]
    for name, wanted in (("object_magnitude", np.abs(obj)), ("probe_magnitude", np.abs(probe).reshape(16, 16))):
        values = np.fromfile(folder / f"{name}.f32", "<f4").reshape(index["items"][name]["shape"])
        assert np.allclose(values, wanted, rtol=1e-5, atol=1e-6)
    phase = np.fromfile(folder / "object_phase.f32", "<f4").reshape(64, 64)
    turned = obj * np.exp(-1j * phase)  # one common phase is left
    inner = turned[8:56, 8:56]
    assert np.abs(np.angle(inner / inner.sum())).max() < 1e-3
    texts = png_texts(folder / "object_phase.png")
    low, high = index["items"]["object_phase"]["range"]
    assert float(texts["Range low"]) == pytest.approx(low, abs=1e-6)
    assert float(texts["Range high"]) == pytest.approx(high, abs=1e-6)
    assert texts["Iteration"] == "6" and texts["Software"].startswith("xptychod ")
    assert not list(folder.glob("*.tmp"))


# ------------------------------------------------------------------------- simulate and compare


def test_simulated_scan_with_its_probe_goes_to_the_truth(job_file, tmp_path):
    scan, out = tmp_path / "clean.h5", tmp_path / "result.h5"
    done = worker("simulate", "--output", scan, "--frames-side", "64", "--grid", "10x10", "--photons", "0")
    assert done.returncode == OK, done
    job = {"scan": {"path": str(scan)}, "probe": {"path": str(scan), "dataset": "/truth/probe"},
           "recon": {"iterations": 150}, "output": {"path": str(out)}}
    assert worker("run", job_file(job), "--quiet").returncode == OK
    assert nrmse(out, scan)["nrmse"] < 0.01
    with h5py.File(out) as f:
        assert f["run/data_error"][-1] < 2e-3


def test_simulated_scan_is_solved_with_an_estimated_probe(simulated, job_file, tmp_path):
    scan, figures = simulated
    out = tmp_path / "result.h5"
    job = {"scan": {"path": str(scan)},
           "recon": {"iterations": 100, "fresnel_distance_m": figures["defocus_m"]}, "output": {"path": str(out)}}
    assert worker("run", job_file(job), "--quiet").returncode == OK
    found = nrmse(out, scan)
    assert found["region"] == "scanned"
    assert found["nrmse_ramp"] < 0.06
    assert found["nrmse_ramp"] <= found["nrmse"]


def test_simulated_counts_are_what_the_report_says(simulated):
    scan, figures = simulated
    with h5py.File(scan) as f:
        frames, probe = f["scan/frames"][...], f["truth/probe"][...]
        obj = f["truth/object"][...]
        positions = f["scan/probe_positions"][...]
        pitch, origin = f["truth"].attrs["pixel_pitch"], f["truth"].attrs["origin"]
    assert frames.shape == (144, 64, 64) and frames.dtype == np.uint16
    assert frames.sum(axis=(1, 2)).mean() == pytest.approx(figures["counts_per_frame"], rel=1e-9)
    assert (np.abs(probe) ** 2).sum() == pytest.approx(1e6, rel=1e-4)
    assert list(obj.shape) == figures["object_shape"]
    assert pitch == pytest.approx(figures["object_pixel_m"])
    # the frame of an independent program, from the truth by the definition
    first = np.rint((positions - origin) / pitch).astype(int) - 32
    for j in (0, 77, 143):
        r, c = first[j]
        wave = probe[0] * obj[r:r + 64, c:c + 64]
        mean = np.abs(np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(wave)) / 64)) ** 2
        chi2 = ((frames[j] - mean) ** 2)[mean > 5] / mean[mean > 5]
        assert chi2.mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / chi2.size))


def test_compare_knows_equal_shifted_and_scaled_images(tmp_path):
    rng = np.random.default_rng(3)
    image = (rng.normal(size=(40, 50)) + 1j * rng.normal(size=(40, 50))).astype(np.complex64)
    paths = {}
    for name, data, origin, pitch in (("a", image, (0.0, 0.0), 1e-8), ("cut", 0.5j * image[3:, 4:], (3e-8, 4e-8), 1e-8),
                                      ("half", image, (0.5e-8, 0.0), 1e-8), ("coarse", image, (0.0, 0.0), 2e-8)):
        paths[name] = tmp_path / f"{name}.h5"
        with h5py.File(paths[name], "w") as f:
            f["sample/object"] = data
            f["sample"].attrs["pixel_pitch"] = pitch
            f["sample"].attrs["origin"] = origin
    same = json.loads(worker("compare", paths["a"], paths["a"], "--json").stdout)
    assert same["nrmse"] < 1e-7 and same["region"] == "all" and same["shape"] == [40, 50]
    cut = json.loads(worker("compare", paths["cut"], paths["a"], "--json").stdout)
    assert cut["nrmse"] < 1e-6 and cut["shape"] == [37, 46] and cut["shift_pixels"] == [-3, -4]
    assert cut["scale"] == pytest.approx([0.0, -2.0], abs=1e-6)
    for name, said in (("half", "0.500 pixels apart"), ("coarse", "pixels differ")):
        done = worker("compare", paths["a"], paths[name])
        assert done.returncode == REFUSED and said in done.stderr


def test_compare_refuses_what_it_cannot_read(simulated, tmp_path):
    scan, _ = simulated
    (tmp_path / "text.h5").write_text("no HDF5")
    for arguments, said in (((scan, tmp_path / "none.h5"), "does not exist"),
                            ((scan, tmp_path / "none.h5"), f"file '{tmp_path}/none.h5': "),
                            ((scan, tmp_path / "text.h5"), "HDF5"),
                            ((scan, f"{scan}:/truth/nothing"), "/truth/nothing")):
        done = worker("compare", *arguments)
        assert done.returncode == REFUSED, done
        assert said in done.stderr
    assert worker("compare", scan).returncode == USAGE
    assert worker("compare", scan, scan, "--region", "moon").returncode == USAGE


# ---------------------------------------------------------------------------------------- bench


@pytest.mark.parametrize("flags, transforms", [((), 3), (("--estimated", "--modes", "2"), 12)])
def test_bench_reports_its_figures(flags, transforms):
    done = worker("bench", "--positions", "20", "--frames-side", "32", "--iterations", "3", "--json", *flags)
    assert done.returncode == OK, done
    figures = json.loads(done.stdout)
    assert figures["transforms"] == transforms * 20
    assert figures["ratio"] == pytest.approx(figures["seconds_per_iteration"] / figures["seconds_bare"])
    assert 0.0 < figures["transform_share"] < 1.0
    assert figures["bytes_moved"] > 0 and figures["rss_peak"] > figures["bytes_device_peak"] > 0


def test_bench_refuses_more_devices_than_positions():
    done = worker("bench", "--positions", "2", "--devices", "cpu,cpu,cpu", "--frames-side", "32")
    assert done.returncode == REFUSED and "3" in done.stderr
    assert worker("bench", "--frames-side", "33").returncode == USAGE


def test_bench_tells_what_a_resident_worker_saves():
    done = worker("bench", "--residency", "--iterations", "2", "--json")
    assert done.returncode == OK, done
    figures = json.loads(done.stdout)
    assert figures["rounds"] == 2 and figures["warm_seconds"] > 0.0 and figures["cold_seconds"] > 0.0
