#!/usr/bin/env bash
# Makes the state folders with an older lockkeeper: sudo ./make.sh PROGRAM
# It invents a host name and a boot id, so that nothing of this machine gets into the files.
set -euo pipefail
if [ $# -ne 2 ]; then
    exec unshare --uts --mount "$0" "$(realpath "$1")" isolated
fi
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hostname maker
echo 00000000-0000-4000-8000-000000000000 >"$work/boot_id"
mount --bind "$work/boot_id" /proc/sys/kernel/random/boot_id
cd /
lk=(env -i PATH=/usr/bin:/bin "AI_SWARM_DIR=$work/swarm" "$1" --dir)

# Copies a folder. Moves the logs of SQLite into the databases, and makes them small.
keep() {
    rm -rf "${here:?}/$1"
    cp -a "$work/$1" "$here/$1"
    python3 - "$here/$1"/*.db <<'PY'
import sqlite3, sys
for path in sys.argv[1:]:
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"]:
        database.execute(statement).fetchall()
    database.close()
PY
    rm -f "$here/$1"/*.db-wal "$here/$1"/*.db-shm
    # Git keeps neither named pipes nor empty folders.
    find "$here/$1" -type p -delete
    find "$here/$1" -type d -empty -delete
}

# runs: requests and runs in many states, a chain of requests, and no lease.
runs() { "${lk[@]}" "$work/runs" "$@"; }
runs submit --id done --title "prints two lines" --lock db -- sh -c 'echo one; echo two >&2'
runs submit --id first --path 'src/**' -- true
runs submit --id bad --priority 3 -- sh -c 'echo no; exit 3'
runs submit --id again --retries 5 --backoff 1h --max-backoff 1h -- sh -c 'exit 7'
runs submit --id late --queue-timeout 1ms -- true
runs run wait late || true
"${lk[@]}" "$work/runs" work --quiet &
worker=$!
for id in done first bad; do runs run wait "$id" || true; done
until runs --json run show again | grep -q retrying; do sleep 0.05; done
kill -TERM $worker
wait $worker || true
runs submit --id second --after first -- sh -c 'echo second'
runs submit --id third --after second -- sh -c 'echo third'
runs submit --id off -- true
runs run cancel off --reason "not needed"
runs submit --id outside -- true
runs run claim outside --worker elsewhere
for name in a b c; do runs exec "$name" -- true; done
keep runs
for id in done first bad again late second third off outside; do
    runs --json run show "$id"
done | sed "s:$work/runs:STATE:" >"$here/runs.jsonl"

# killed: the holder and the waiter of a lease were killed.
"${lk[@]}" "$work/killed" exec db -- sleep 600 &
holder=$!
until "${lk[@]}" "$work/killed" --json locks | grep -q '"name":"db"'; do sleep 0.05; done
"${lk[@]}" "$work/killed" exec db -- true &
waiter=$!
until "${lk[@]}" "$work/killed" --json locks | grep -q '"ticket":"'; do sleep 0.05; done
kill -KILL "$waiter"
pkill -KILL -P "$holder"
kill -KILL "$holder" 2>/dev/null || true
wait "$holder" "$waiter" || true
keep killed
