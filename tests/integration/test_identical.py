"""The same bits on any number of devices and threads and with any batch size; and again in another process."""

import json

import h5py
import pytest

import xptychod
from conftest import DATA

LAYOUTS = [  # devices, threads of all, batch
    (1, 1, None), (1, 2, None), (2, 1, None), (2, 2, 7), (3, 2, None), (3, 1, 1), (5, 1, 13), (5, 2, None), (1, 2, 1),
]
RUNS = {
    "estimated": ("medium.h5", {}, {"iterations": 6}),
    "two modes": ("medium_two.h5", {"probe_modes": 2},
                  {"iterations": 6, "mode_schedule": [3], "orthogonalize_modes": True}),
    "masked": ("medium_masked.h5", {}, {"iterations": 4}),
    "known": ("medium.h5", {}, {"iterations": 6}),
    "stages": ("medium_shifted.h5", {}, [{"iterations": 3}, {"algorithm": "refine_positions", "max_shift": 1},
                                         {"iterations": 3, "fresnel_distance_m": 1e-7}]),
}


def result_of(job, folder):
    path, out = folder / "job.json", folder / "result.h5"
    job = {**job, "output": {"path": str(out), "overwrite": True}}
    path.write_text(json.dumps(job))
    done = xptychod.run("xptycho-worker", "run", path)
    assert done.returncode == 0, done
    with h5py.File(out) as f:
        arrays = {name: f[name][...] for name in ("sample/object", "sample/probe", "run/data_error")}
    return {name: (a.shape, a.tobytes()) for name, a in arrays.items()}


@pytest.mark.parametrize("name", RUNS)
def test_layouts_give_the_same_bytes(name, tmp_path):
    scan, model, recon = RUNS[name]
    stages = recon if isinstance(recon, list) else [recon]
    first = None
    for devices, threads, batch in LAYOUTS:
        with_batch = [{**stage, **({"batch_size": batch} if batch else {})} for stage in stages]
        job = {"scan": {"path": str(DATA / scan)}, "model": model,
               "recon": with_batch if isinstance(recon, list) else with_batch[0],
               "devices": {"devices": ["cpu"] * devices, "cpu_threads": threads}}
        if name == "known":
            job["probe"] = {"path": str(DATA / scan), "dataset": "/truth/probe"}
        result = result_of(job, tmp_path)
        iterations = sum(stage.get("iterations", 0) for stage in stages)
        assert result["run/data_error"][0][0] >= iterations
        first = first or result
        different = [array for array in result if result[array] != first[array]]
        assert not different, f"{devices} devices, {threads} threads, batch {batch}: {different} differ"


def test_the_same_job_twice_gives_the_same_bytes(tmp_path):
    job = {"scan": {"path": str(DATA / "medium.h5")}, "recon": {"iterations": 4}}
    assert result_of(job, tmp_path) == result_of(job, tmp_path)


def test_default_devices_give_the_bytes_of_named_ones(tmp_path):
    job = {"scan": {"path": str(DATA / "medium.h5")}, "recon": {"iterations": 3}}
    named = {**job, "devices": {"devices": ["cpu", "cpu"], "cpu_threads": 1}}
    assert result_of(job, tmp_path) == result_of(named, tmp_path)
