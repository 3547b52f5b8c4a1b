"""Takes, shows and releases a lease by a client that was generated from the OpenAPI document."""

import sys

from generated import Client
from generated.api.locks import acquire_lock, release_lock, show_lock
from generated.api.runs import list_runs
from generated.models import Error, LockRequest, LockResponse, RunList

client = Client(base_url=sys.argv[1])
taken = acquire_lock.sync(client=client, body=LockRequest(names=["python"], owner="test:python"))
assert isinstance(taken, LockResponse), taken
lease = taken.lease
held = show_lock.sync(lease.id, client=client)
print(lease.id, held.lease.owner, lease.resources[0].name)
wrong = release_lock.sync(lease.id, client=client)
assert isinstance(wrong, Error), wrong
print(wrong.error.reason_code)
print(release_lock.sync(lease.id, client=client, token=lease.token).status)
runs = list_runs.sync(client=client)
assert isinstance(runs, RunList), runs
print(",".join(f"{run.title} {run.status}" for run in runs.runs))
