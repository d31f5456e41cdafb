#!/usr/bin/env bash
# docs/offline.md on a bare Debian: a folder is downloaded, and a second checkout installed from it without a network.
set -euo pipefail
cd "$(dirname "$0")"
KEEP=$(mktemp -d "${TMPDIR:-/var/tmp}/servegrid-offline.XXXXXX")
export KEEP
trap 'rm -rf --one-file-system "$KEEP"' EXIT
./run.sh 'make install && .venv/bin/servegrid offline download ~/offline && git clone --quiet . ~/other && rm -rf ~/.cache'
NETWORK=none ./run.sh 'cd ~/other && python3 -m servegrid.offline install ~/offline && make sweep && .venv/bin/servegrid report'
