#!/usr/bin/env python3
"""Holds a lock in a `with` block. It ends with this process, however that ends."""
import contextlib
import json
import os
import subprocess
import sys


@contextlib.contextmanager
def lock(*names, wait="5m"):
    asked = ["lockkeeper", "--json", "acquire", *names, f"--wait={wait}", f"--pid={os.getpid()}", "--quiet"]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True)
    answer = json.loads(done.stdout)
    if answer.get("status") != "acquired":
        raise TimeoutError(answer.get("message") or answer["error"]["message"])
    lease = answer["lease"]
    try:
        yield lease
    finally:
        subprocess.run(["lockkeeper", "--json", "release", lease["id"]], stdout=subprocess.DEVNULL, check=True)


try:
    with lock("db", wait=sys.argv[1]):
        print("migrating")
except TimeoutError as error:
    print(error, file=sys.stderr)
    sys.exit(75)
