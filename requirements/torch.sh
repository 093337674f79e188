#!/bin/sh
# Installs torch's CPU build by its hash. Where no such build is offered (another system, another index),
# the version alone is asked for, and said to be: builds differ from index to index, and so do their hashes.
set -eu
cd "$(dirname "$0")/.."
if ! said=$("$PIP" install --quiet --no-deps --require-hashes --requirement requirements/torch.txt 2>&1); then
  case "$said" in
    *"DO NOT MATCH THE HASHES"*) printf '%s\n' "$said" >&2; exit 1 ;;
    *"No matching distribution"*) echo "torch: no CPU build here that is known by its hash; installing by version" ;;
    *) printf '%s\n' "$said" >&2; exit 1 ;;
  esac
  "$PIP" install --quiet --constraint constraints.txt torch==2.13.0
fi
