"""A Bluesky callback that hands every finished scan to xptychod.

In a Bluesky session:

    RE.subscribe(ReconstructOnStop(lambda start: f"/data/{start['scan_id']:05d}.h5"))

It is called with the documents of a run.  At the document `stop` of a run that ended well it submits the
scan and returns at once: the beamline does not wait for a reconstruction, and a service that is down for a
moment does not stop a scan.  The run's uid is the Idempotency-Key, so documents that are replayed make no
second job, and goes with the job as a label, so that the job is found again:

    xptycho list --json | jq '.jobs[] | select(.labels.bluesky_uid == "...")'

As a program, without Bluesky, it emits the documents of one run and follows the job:

    python3 bluesky_callback.py SCAN.h5 [ITERATIONS]
"""

import logging
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # not needed where the module is installed

import xptycho_client  # noqa: E402

log = logging.getLogger("reconstruct")


class ReconstructOnStop:
    """path_of(start document) names the scan file; `recon` is that part of the job; jobs: {run uid: job}."""

    def __init__(self, path_of, recon=None, client=None):
        self.path_of, self.recon = path_of, recon or {}
        self.client = client or xptycho_client.Client()
        self.jobs, self._starts = {}, {}

    def __call__(self, name, document):
        if name == "start":
            self._starts[document["uid"]] = document
        elif name == "stop":
            start = self._starts.pop(document["run_start"], None)
            if start and document["exit_status"] == "success":
                self._submit(start)

    def _submit(self, start):
        job = {"name": f"scan {start['scan_id']}",
               "labels": {"bluesky_uid": start["uid"]},
               "metadata": {"plan_name": start.get("plan_name"), "scan_id": start["scan_id"]},
               "scan": {"path": self.path_of(start)},
               "recon": self.recon}
        try:
            self.jobs[start["uid"]] = self.client.submit(job, idempotency_key=start["uid"])
        except xptycho_client.Error as error:  # an exception in a callback would end the run of others
            log.error("scan %s is not reconstructed: %s", start["scan_id"], error)


def main(path, iterations=20):
    logging.basicConfig(level=logging.INFO)
    callback = ReconstructOnStop(lambda start: path, {"iterations": iterations, "report_every": 5})
    uid = str(uuid.uuid4())
    documents = [("start", {"uid": uid, "scan_id": 4711, "plan_name": "fermat_spiral"}),
                 ("descriptor", {"uid": str(uuid.uuid4()), "run_start": uid}),
                 ("stop", {"uid": str(uuid.uuid4()), "run_start": uid, "exit_status": "success"})]
    for _ in range(2):  # the second time replayed: still one job
        for name, document in documents:
            callback(name, document)
    if uid not in callback.jobs:
        return 1
    job = callback.jobs[uid]["id"]
    print("job", job)
    for event in callback.client.events(job):
        if event["type"] == "iter" and event["data_error"] is not None:
            print("iteration", event["iter"], "data error", event["data_error"])
        elif event["type"] == "end":
            print(event["state"], event["detail"])
            return 0 if event["state"] == "succeeded" else 1


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
