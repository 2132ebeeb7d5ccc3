"""The life of a job over HTTP: submit, events, result, previews, dry run, cancel, delete, rerun, log, queue, list."""

import hashlib
import io
import json
import pathlib
import struct
import zlib

import h5py
import numpy as np
import pytest

import xptychod

JOB_ID = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"


def job_of(path, iterations=8, **changes):
    job = {"name": "test", "scan": {"path": path}, "recon": {"iterations": iterations}}
    job.update(changes)
    return job


def endless(path):
    """Runs until it is cancelled."""
    return job_of(path, iterations=100000, preview_every_s=0.2)


@pytest.fixture(scope="module")
def finished(shared_daemon, scan_file):
    """(document, events) of a job that has succeeded."""
    job = job_of(scan_file, labels={"beamline": "x"}, metadata={"scan_id": 4711, "deep": [1, {"a": None}]})
    submitted = shared_daemon.api.submit(job)
    events = shared_daemon.api.events(submitted["id"])
    return shared_daemon.api.show(submitted["id"]), events


# -------------------------------------------------------------------------------- submit, events


def test_submit_answers_201_with_location_and_document(shared_daemon, scan_file):
    response = shared_daemon.api.post("/v1/jobs", job_of(scan_file))
    assert response.status == 201
    job = response.json()
    assert response.headers["Location"].endswith(f"/v1/jobs/{job['id']}")
    assert response.headers["ETag"]
    assert job["state"] in ("queued", "starting") and job["terminal"] is False and job["attempts"] == 0
    assert job["job"]["recon"]["relaxation"] == 0.5, "defaults are written out"
    assert shared_daemon.api.finish(job["id"])["state"] == "succeeded"


def test_events_are_numbered_without_holes_and_end_once(finished):
    job, events = finished
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [e["type"] for e in events].count("end") == 1 and events[-1]["type"] == "end"
    states = [e["state"] for e in events if e["type"] == "state"]
    assert states[:3] == ["queued", "starting", "running"], states
    iterations = [e for e in events if e["type"] == "iter"]
    assert [e["iter"] for e in iterations] == list(range(1, 9))
    assert all(e["stage"] == 0 and e["modes"] == 1 and 0 < e["data_error"] < 2 for e in iterations)
    assert iterations[-1]["data_error"] < iterations[0]["data_error"]
    assert any(e["type"] == "preview" for e in events)
    assert events[-1]["state"] == "succeeded" and events[-1]["reason"] == ""
    assert events[-1]["result"]["sha256"] == job["result"]["sha256"]


def test_document_carries_what_was_submitted(finished):
    job, _ = finished
    assert job["state"] == "succeeded" and job["terminal"] is True
    assert job["labels"] == {"beamline": "x"} and job["metadata"] == {"scan_id": 4711, "deep": [1, {"a": None}]}
    assert job["progress"]["iter"] == 8 and job["finished"] >= job["started"] >= job["created"]


def test_metadata_as_deep_as_a_body_may_be_goes_all_the_way(shared_daemon, scan_file):
    deep = "[" * 31 + "]" * 31  # with the document around it 32 levels
    body = json.dumps(job_of(scan_file, iterations=2))[:-1] + f', "metadata": {deep}}}'
    job = shared_daemon.api.post("/v1/jobs", body)
    assert job.status == 201, job
    done = shared_daemon.api.finish(job.json()["id"])
    assert done["state"] == "succeeded" and done["metadata"] == json.loads(deep), done
    assert shared_daemon.api.post("/v1/jobs", body.replace(deep, f"[{deep}]")).status == 400


def test_the_three_encodings_say_the_same(shared_daemon, finished):
    job, events = finished
    with shared_daemon.api.stream(job["id"], accept="text/event-stream") as stream:
        assert stream.response.headers["Content-Type"].startswith("text/event-stream")
        assert stream.response.headers["Cache-Control"] == "no-store"
        assert list(stream) == events
    for accept in ("text/plain", "*/*"):
        with shared_daemon.api.stream(job["id"], accept=accept) as stream:
            assert stream.response.headers["Content-Type"].startswith("text/plain")
            lines = list(stream.lines())
        wanted = [f"iteration {e['iter']:4d}   data error {e['data_error']:.6f}   modes {e['modes']}"
                  for e in events if e["type"] == "iter"]
        assert [line for line in lines if line.startswith("iteration")] == wanted
        assert "# state running" in lines and any(line.startswith("# end succeeded") for line in lines)


def test_an_encoding_nobody_makes_is_406(shared_daemon, finished):
    assert shared_daemon.api.get(f"/v1/jobs/{finished[0]['id']}/events", Accept="image/png").status == 406


def test_a_stream_resumes_without_gap_or_duplicate(shared_daemon, slow_scan_file):
    api = shared_daemon.api
    job = api.submit(job_of(slow_scan_file, iterations=40))
    seen = []
    while not seen or seen[-1]["type"] != "end":
        last = seen[-1]["seq"] if seen else None
        with api.stream(job["id"], last=last, accept="text/event-stream") as stream:
            for count, event in enumerate(stream, 1):
                seen.append(event)
                if count == 7:
                    break  # the connection is dropped in mid-stream
    assert [e["seq"] for e in seen] == list(range(1, len(seen) + 1))
    assert seen == api.events(job["id"])
    assert api.get(f"/v1/jobs/{job['id']}/events", Last_Event_ID=str(seen[-1]["seq"])).status == 204


def test_from_and_follow(shared_daemon, finished):
    job, events = finished
    assert shared_daemon.api.events(job["id"], start=5) == events[4:]
    assert shared_daemon.api.events(job["id"], start=5, follow=0) == events[4:]
    for wrong in ("0", "-1", "x", "1e3"):
        assert shared_daemon.api.get(f"/v1/jobs/{job['id']}/events?from={wrong}").status == 400, wrong


def test_follow_0_ends_while_the_job_runs(shared_daemon, slow_scan_file):
    api = shared_daemon.api
    job = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(job["id"], 2)
    events = api.events(job["id"], follow=0)
    assert events and events[-1]["type"] != "end"
    api.post(f"/v1/jobs/{job['id']}/cancel")
    api.finish(job["id"])


def test_all_events_show_the_states_of_a_job(shared_daemon, scan_file):
    api = shared_daemon.api
    with xptychod.EventStream(api, "/v1/events") as stream:
        job = api.submit(job_of(scan_file))
        states = []
        for event in stream:
            if event["job"] != job["id"]:
                continue
            assert event["type"] in ("state", "end")
            states.append(event["state"])
            if event["type"] == "end":
                break
    assert states[-1] == "succeeded" and "running" in states


def test_a_client_that_goes_away_cancels_nothing(shared_daemon, slow_scan_file):
    api = shared_daemon.api
    job = api.submit(job_of(slow_scan_file, iterations=30))
    with api.stream(job["id"]) as stream:
        next(iter(stream))
    assert api.finish(job["id"])["state"] == "succeeded"


# ------------------------------------------------------------------------------- result, previews


def test_result_data_opens_and_is_the_file_that_was_hashed(shared_daemon, finished):
    job, events = finished
    result = shared_daemon.api.get(f"/v1/jobs/{job['id']}/result").json()
    response = shared_daemon.api.get(f"/v1/jobs/{job['id']}/result/data")
    assert response.status == 200 and response.headers["Content-Type"] == "application/x-hdf5"
    assert hashlib.sha256(response.body).hexdigest() == result["sha256"] and len(response.body) == result["bytes"]
    with h5py.File(io.BytesIO(response.body)) as f:
        assert f.attrs["complete"] == 1
        assert list(f["sample/object"].shape) == result["object_shape"]
        assert f["sample/object"].dtype == np.complex64
        assert f["sample/probe"].shape[-2:] == (32, 32)
        errors = f["run/data_error"][...]
    wanted = [e["data_error"] for e in events if e["type"] == "iter"]
    np.testing.assert_allclose(errors, wanted, rtol=1e-8)
    assert result["iterations"] == 8 and result["data_error"] == pytest.approx(errors[-1], rel=1e-8)


def test_a_range_of_the_result_is_served(shared_daemon, finished):
    path = f"/v1/jobs/{finished[0]['id']}/result/data"
    whole = shared_daemon.api.get(path).body
    part = shared_daemon.api.get(path, Range="bytes=8-23")
    assert part.status == 206 and part.body == whole[8:24]
    assert part.headers["Content-Range"] == f"bytes 8-23/{len(whole)}"


def test_result_at_a_path_of_the_job_is_never_replaced_by_chance(shared_daemon, scan_file, tmp_path):
    out = tmp_path / "out.h5"
    job = job_of(scan_file, output={"path": str(out)})
    first = shared_daemon.api.finish(shared_daemon.api.submit(job)["id"])
    assert first["result"]["path"] == str(out) and out.exists()
    refused = shared_daemon.api.post("/v1/jobs", job)
    assert refused.status == 422 and "overwrite" in refused.text
    job["output"]["overwrite"] = True
    second = shared_daemon.api.finish(shared_daemon.api.submit(job)["id"])
    assert second["state"] == "succeeded"
    gone = shared_daemon.api.get(f"/v1/jobs/{first['id']}/result/data")
    assert gone.status == 410, "the file is no longer the one that the first job wrote"
    assert [p.name for p in tmp_path.iterdir()] == ["out.h5"], "nothing half-written is left"


def test_overwrite_replaces_results_only(shared_daemon, scan_file, tmp_path):
    other = tmp_path / "precious.h5"
    other.write_bytes(b"not a result")
    response = shared_daemon.api.post("/v1/jobs", job_of(scan_file, output={"path": str(other), "overwrite": True}))
    if response.status == 201:
        assert shared_daemon.api.finish(response.json()["id"])["reason"] == "output"
    else:
        assert response.status == 422, response
    assert other.read_bytes() == b"not a result"


def png_text(data):
    """(width, height, {keyword: text}) of a PNG; checks every chunk's sum."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, size, text = 8, None, {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        if kind == b"tEXt":
            key, _, value = body.partition(b"\0")
            text[key.decode()] = value.decode("latin-1")
        at += 12 + length
    return (*size, text)


@pytest.mark.parametrize("what", ["object_phase", "object_magnitude", "probe_phase", "probe_magnitude"])
def test_previews(shared_daemon, finished, what):
    job, _ = finished
    png = shared_daemon.api.get(f"/v1/jobs/{job['id']}/preview.png?what={what}")
    assert png.status == 200 and png.headers["Content-Type"] == "image/png", png
    width, height, text = png_text(png.body)
    raw = shared_daemon.api.get(f"/v1/jobs/{job['id']}/preview.f32?what={what}")
    rows, cols = map(int, raw.headers["X-Xptycho-Shape"].split(","))
    values = np.frombuffer(raw.body, "<f4").reshape(rows, cols)
    assert np.isfinite(values).all() and (height, width) == (rows, cols)
    assert any(any(c.isdigit() for c in value) for value in text.values()), f"the range stands in the text: {text}"
    assert int(raw.headers["X-Xptycho-Iteration"]) == 8
    again = shared_daemon.api.get(f"/v1/jobs/{job['id']}/preview.png?what={what}", If_None_Match=png.headers["ETag"])
    assert again.status == 304


def test_preview_of_the_object_is_the_result(shared_daemon, finished):
    job, _ = finished
    raw = shared_daemon.api.get(f"/v1/jobs/{job['id']}/preview.f32?what=object_magnitude")
    shown = np.frombuffer(raw.body, "<f4")
    with h5py.File(io.BytesIO(shared_daemon.api.get(f"/v1/jobs/{job['id']}/result/data").body)) as f:
        np.testing.assert_allclose(shown, np.abs(f["sample/object"][...]).ravel(), rtol=1e-5, atol=1e-6)


def test_unknown_picture_is_400(shared_daemon, finished):
    assert shared_daemon.api.get(f"/v1/jobs/{finished[0]['id']}/preview.png?what=../secret").status == 400


def test_result_and_previews_of_a_job_that_has_none_are_404(shared_daemon, slow_scan_file, scan_file):
    api = shared_daemon.api
    holder = api.submit(endless(slow_scan_file))
    waiting = api.submit(job_of(scan_file))
    for what in ("result", "result/data", "preview.png", "preview.f32"):
        response = api.get(f"/v1/jobs/{waiting['id']}/{what}")
        assert response.status == 404, what
    assert api.get(f"/v1/jobs/{waiting['id']}/result").json()["type"] == "urn:xptychod:problem:result-not-ready"
    api.post(f"/v1/jobs/{holder['id']}/cancel")
    assert api.finish(waiting["id"])["state"] == "succeeded"


# ------------------------------------------------------------------------------ dry run, repetition


def test_dry_run_judges_and_creates_nothing(shared_daemon, scan_file):
    before = shared_daemon.api.get("/v1/jobs").json()["jobs"]
    response = shared_daemon.api.post("/v1/jobs?dry_run=true", job_of(scan_file))
    assert response.status == 200, response
    verdict = response.json()
    assert verdict["admitted"] is True and verdict["scan"]["frames"] == 36 and verdict["scan"]["frame_side"] == 32
    assert [d["name"] for d in verdict["devices"]] == ["cpu"] and verdict["devices"][0]["frames"] == 36
    assert verdict["devices"][0]["bytes_needed"] > 20 * 32 * 32 * 36
    assert [j["id"] for j in shared_daemon.api.get("/v1/jobs").json()["jobs"]] == [j["id"] for j in before]


def test_dry_run_refuses_as_a_submission_does(shared_daemon, scan_file):
    job = job_of(scan_file, devices={"devices": ["cpu"] * 37})
    dry, real = (shared_daemon.api.post(p, job) for p in ("/v1/jobs?dry_run=true", "/v1/jobs"))
    assert dry.status == real.status == 422 and dry.json()["detail"] == real.json()["detail"]


def test_idempotency_key_makes_one_job(shared_daemon, scan_file):
    api, job = shared_daemon.api, job_of(scan_file)
    first = api.post("/v1/jobs", job, Idempotency_Key="key-1")
    second = api.post("/v1/jobs", job, Idempotency_Key="key-1")
    assert first.status == second.status == 201
    assert first.json()["id"] == second.json()["id"] and second.headers["Idempotency-Replayed"] == "true"
    other = api.post("/v1/jobs", job_of(scan_file, iterations=9), Idempotency_Key="key-1")
    assert other.status == 422 and other.json()["type"] == "urn:xptychod:problem:idempotency-conflict"
    api.finish(first.json()["id"])


# ------------------------------------------------------------------------ cancel, delete, rerun, log


def test_cancel_of_a_running_job_keeps_a_partial_result(shared_daemon, slow_scan_file):
    api = shared_daemon.api
    job = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(job["id"], 3)
    assert api.post(f"/v1/jobs/{job['id']}/cancel").status == 202
    done = api.finish(job["id"])
    assert done["state"] == "cancelled" and done["reason"] == "cancelled"
    assert done["result"]["partial"] is True and done["result"]["iterations"] >= 3
    with h5py.File(io.BytesIO(api.get(f"/v1/jobs/{job['id']}/result/data").body)) as f:
        assert len(f["run/data_error"]) == done["result"]["iterations"]
    again = api.post(f"/v1/jobs/{job['id']}/cancel")
    assert again.status == 200 and again.json() == done


def test_cancel_of_a_queued_job_ends_it_at_once(shared_daemon, slow_scan_file, scan_file):
    api = shared_daemon.api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    waiting = api.submit(job_of(scan_file))
    assert api.show(waiting["id"])["state"] == "queued"
    assert api.post(f"/v1/jobs/{waiting['id']}/cancel").status in (200, 202)
    done = api.finish(waiting["id"])
    assert done["state"] == "cancelled" and done["result"] is None and done["started"] is None
    assert api.show(holder["id"])["state"] == "running", "other jobs go on"
    api.post(f"/v1/jobs/{holder['id']}/cancel")
    api.finish(holder["id"])


def test_delete_is_for_terminal_jobs_and_takes_everything(shared_daemon, slow_scan_file):
    api = shared_daemon.api
    job = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(job["id"], 1)
    refused = api.delete(f"/v1/jobs/{job['id']}")
    assert refused.status == 409 and refused.json()["type"] == "urn:xptychod:problem:conflict"
    api.post(f"/v1/jobs/{job['id']}/cancel")
    done = api.finish(job["id"])
    assert (shared_daemon.state / "jobs" / job["id"]).exists()
    assert api.delete(f"/v1/jobs/{job['id']}").status == 204
    assert api.get(f"/v1/jobs/{job['id']}").status == 404
    assert api.delete(f"/v1/jobs/{job['id']}").status in (204, 404)
    assert not (shared_daemon.state / "jobs" / job["id"]).exists()
    assert not pathlib.Path(done["result"]["path"]).exists()


def test_rerun_takes_the_document_with_changes(shared_daemon, finished):
    api = shared_daemon.api
    old, events = finished
    same = api.post(f"/v1/jobs/{old['id']}/rerun")
    assert same.status == 201 and same.json()["id"] != old["id"], same
    done = api.finish(same.json()["id"])
    assert done["job"]["recon"] == old["job"]["recon"] and done["labels"] == old["labels"]
    assert done["result"]["data_error"] == old["result"]["data_error"]
    changed = api.post(f"/v1/jobs/{old['id']}/rerun", {"recon": {"iterations": 3}, "labels": None})
    done = api.finish(changed.json()["id"])
    assert done["result"]["iterations"] == 3 and done["labels"] == {}
    wrong = api.post(f"/v1/jobs/{old['id']}/rerun", {"recon": {"interations": 3}})
    assert wrong.status == 422 and "iterations" in wrong.json()["errors"][0]["detail"]


def test_log_is_text_and_tail_shortens_it(shared_daemon, finished):
    job, _ = finished
    response = shared_daemon.api.get(f"/v1/jobs/{job['id']}/log")
    assert response.status == 200 and response.headers["Content-Type"].startswith("text/plain")
    lines = response.text.splitlines()
    assert len(lines) >= 2
    assert shared_daemon.api.get(f"/v1/jobs/{job['id']}/log?tail=1").text.splitlines() == lines[-1:]


# ------------------------------------------------------------------------------------ queue and list


def test_queue_runs_by_priority_and_then_in_order(shared_daemon, slow_scan_file, scan_file):
    api = shared_daemon.api
    holder = api.submit(endless(slow_scan_file))
    api.wait_for_iteration(holder["id"], 1)
    ids = [api.submit(job_of(scan_file, priority=p))["id"] for p in (0, 5, 0, -3)]
    queue = api.get("/v1/queue").json()
    assert [j["id"] for j in queue["running"]] == [holder["id"]]
    wanted = [ids[1], ids[0], ids[2], ids[3]]
    assert [j["id"] for j in queue["queued"]] == wanted
    assert [j["position"] for j in queue["queued"]] == [1, 2, 3, 4]
    assert all(j["waits_for"] for j in queue["queued"])
    assert api.show(ids[0])["queue_position"] == 2
    assert next(d for d in api.get("/v1/devices").json()["devices"] if d["name"] == "cpu")["job"] == holder["id"]
    api.post(f"/v1/jobs/{holder['id']}/cancel")
    started = [api.finish(job_id)["started"] for job_id in wanted]
    assert started == sorted(started)


def test_list_pages_have_every_job_once(shared_daemon, scan_file):
    api = shared_daemon.api
    ids = [api.submit(job_of(scan_file, iterations=1))["id"] for _ in range(5)]
    for job_id in ids:
        api.finish(job_id)
    seen, path = [], "/v1/jobs?limit=2"
    while path:
        response = api.get(path)
        page = response.json()
        assert len(page["jobs"]) <= 2
        seen += [j["id"] for j in page["jobs"]]
        path = page["next"] and f"/v1/jobs?limit=2&cursor={page['next']}"
        assert bool(path) == ('rel="next"' in (response.headers["Link"] or ""))
    assert len(seen) == len(set(seen)) and seen[:5] == ids[::-1], "newest first"
    assert all("job" not in j for j in api.get("/v1/jobs").json()["jobs"])


def test_list_filters_by_state(shared_daemon, finished):
    api = shared_daemon.api
    assert finished[0]["id"] in [j["id"] for j in api.get("/v1/jobs?state=succeeded&limit=200").json()["jobs"]]
    assert {j["state"] for j in api.get("/v1/jobs?state=failed&state=cancelled&limit=200").json()["jobs"]} <= {
        "failed", "cancelled"}
    for wrong in ("state=done", "limit=0", "limit=201", "limit=x", "cursor=%00"):
        assert api.get(f"/v1/jobs?{wrong}").status == 400, wrong


def test_a_job_that_is_said_to_have_ended_has_its_end_and_can_be_deleted(shared_daemon, scan_file):
    """An end is told when it is on the disk, not a moment earlier: what comes next may count on it."""
    api = shared_daemon.api
    for _ in range(20):
        job = api.submit(job_of(scan_file, iterations=1))["id"]
        answer = api.get(f"/v1/jobs/{job}")
        while not answer.json()["terminal"]:
            later = api.get(f"/v1/jobs/{job}", If_None_Match=answer.headers["ETag"], Prefer="wait=30")
            answer = later if later.status == 200 else answer
        assert api.events(job, follow=0)[-1]["type"] == "end"
        assert api.delete(f"/v1/jobs/{job}").status == 204


def test_etag_answers_304_until_the_job_changes(shared_daemon, finished):
    api, path = shared_daemon.api, f"/v1/jobs/{finished[0]['id']}"
    tag = api.get(path).headers["ETag"]
    assert api.get(path, If_None_Match=tag).status == 304
    assert api.get(path, If_None_Match='"other"').status == 200


@pytest.mark.parametrize("what", ["", "/events", "/log", "/result", "/result/data", "/preview.png", "/preview.f32"])
def test_a_job_that_does_not_exist_is_404(shared_daemon, what):
    for job_id in (JOB_ID, "short", JOB_ID + "A", JOB_ID.lower()):
        response = shared_daemon.api.get(f"/v1/jobs/{job_id}{what}")
        assert response.status == 404 and response.headers["Content-Type"] == "application/problem+json", job_id
    for verb in ("cancel", "rerun"):
        assert shared_daemon.api.post(f"/v1/jobs/{JOB_ID}/{verb}").status == 404
