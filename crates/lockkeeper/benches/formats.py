"""The formats' own procedures, as their documents have them, in one process that does as many rounds as it is told.

Input: FORMAT fresh|stale ROUNDS. Output: the median of one lock and unlock, in nanoseconds.
"""
import datetime
import json
import os
import sys
import time

GONE = 4_000_001


def clock(hours=0):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def create(path, record):
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(record, file)


def create_or_replace(path, record, is_stale):
    try:
        create(path, record)
    except FileExistsError:
        with open(path) as file:
            if not is_stale(json.load(file)):
                raise
        os.unlink(path)
        create(path, record)


def swarm_record(hours=0):
    at = clock(hours).isoformat()
    return {"worker_id": "w", "task_id": "t", "acquired_at": at, "heartbeat_at": at, "ttl": 300}


def swarm(path):
    create_or_replace(
        path,
        swarm_record(),
        lambda old: datetime.datetime.fromisoformat(old["heartbeat_at"]).timestamp() + old["ttl"] < time.time(),
    )


def aiflow_record(hours=0, pid=0):
    return {
        "version": "1.0", "lock_type": "request", "request_id": "RQ-1", "run_id": "RUN-1", "pid": pid or os.getpid(),
        "host": "127.0.0.1", "created_at": clock(hours).isoformat(), "expires_at": clock(hours + 0.5).isoformat(),
    }


def aiflow(path):
    create_or_replace(
        path,
        aiflow_record(),
        lambda old: datetime.datetime.fromisoformat(old["expires_at"]) < clock() and not runs(old["pid"]),
    )


def sprint_record(pid):
    started = clock().strftime("%Y-%m-%dT%H:%M:%SZ")
    return f'pid: {pid}\nsession_id: "s"\nstarted_at: "{started}"\nepic_spec: "e"\nlock_version: 1\n'


def sprint_read(path):
    with open(path) as file:
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


def sprint(path):
    if os.path.exists(path) and runs(int(sprint_read(path)["pid"])):
        raise FileExistsError(path)
    aside = path + ".tmp"
    with open(aside, "w") as file:
        file.write(sprint_record(os.getpid()))
    sprint_read(aside)
    os.rename(aside, path)
    assert sprint_read(path)["pid"] == str(os.getpid())


FORMATS = {
    "sprint": (sprint, lambda: sprint_record(GONE)),
    "swarm": (swarm, lambda: json.dumps(swarm_record(-1))),
    "aiflow": (aiflow, lambda: json.dumps(aiflow_record(-1, GONE))),
}

for line in sys.stdin:
    name, kind, rounds = line.split()
    lock, stale = FORMATS[name]
    samples = []
    for _ in range(int(rounds)):
        if kind == "stale":
            with open(name, "w") as file:
                file.write(stale())
        begun = time.perf_counter_ns()
        lock(name)
        os.unlink(name)
        samples.append(time.perf_counter_ns() - begun)
    print(sorted(samples)[len(samples) // 2], flush=True)
