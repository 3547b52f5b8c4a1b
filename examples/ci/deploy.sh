#!/bin/sh
# Runs under `lockkeeper exec production`. Asks before each step that cannot be undone.
set -eu
for step in migrate switch; do
    lockkeeper fence production "$LOCKKEEPER_TOKEN"
    echo "$step"
done
