"""A worker of the original system, as its document describes it; knows nothing of the guard.

First line of input: folder, tab, name. Then one order a line, one answer a line:
take    create with O_EXCL, never break           break   the document's own procedure: check, delete, create
beat    read, check, write beside, rename over    check   who is in the file?
unlock  read, check, delete
"""
import json, os, sys
from datetime import datetime, timedelta, timezone

folder, name = sys.stdin.readline().rstrip("\n").split("\t")
path = os.path.join(folder, "locks", "a.lock")


def record():
    now = datetime.now(timezone.utc).isoformat()
    return json.dumps({"worker_id": name, "task_id": "a", "acquired_at": now, "heartbeat_at": now, "ttl": 300})


def read():
    with open(path) as file:
        return json.load(file)


def create():
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return "busy"
    text = record().encode()
    os.write(descriptor, text[:20])
    os.write(descriptor, text[20:])
    os.close(descriptor)
    return "won"


def expired(lock):
    beat = datetime.fromisoformat(lock["heartbeat_at"].replace("Z", "+00:00"))
    return beat + timedelta(seconds=lock["ttl"]) < datetime.now(timezone.utc)


def break_stale():
    try:
        if not expired(read()):
            return "busy"
        os.unlink(path)
    except (FileNotFoundError, ValueError):
        pass
    return create()


def mine():
    try:
        return read()["worker_id"] == name
    except (FileNotFoundError, ValueError):
        return False


def beat():
    if not mine():
        return "lost"
    beside = os.path.join(folder, "beside." + name)
    with open(beside, "w") as file:
        file.write(record())
    os.replace(beside, path)
    return "kept"


def unlock():
    if not mine():
        return "lost"
    os.unlink(path)
    return "unlocked"


orders = {
    "take": create,
    "break": break_stale,
    "beat": beat,
    "check": lambda: "kept" if mine() else "lost",
    "unlock": unlock,
}
print("@ready", flush=True)
for line in sys.stdin:
    print("@" + orders[line.strip()](), flush=True)
