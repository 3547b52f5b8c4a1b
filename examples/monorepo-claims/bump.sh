#!/bin/sh
# Sets the version in all packages, while nobody works on their manifests.
# usage: bump.sh VERSION
set -eu
lease=$(lockkeeper acquire --path 'packages/*/VERSION' --reason "version $1" --wait)
for file in packages/*/VERSION; do
    echo "$1" > "$file"
done
grep . packages/*/VERSION
lockkeeper release "$lease"
