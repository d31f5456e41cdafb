#!/usr/bin/env bash
# Both commands of the README, as a new user runs them, and what must hold after them. BUSY=1 keeps one core busy.
set -euo pipefail
cd "$(dirname "$0")/../.."
log=$(dirname "$PWD")/second-sweep.log
touch ../started
if [ -n "${BUSY:-}" ]; then
    sh -c 'while :; do :; done' &
    trap 'kill %1' EXIT
fi

timed() {
    local start=$SECONDS
    "$@"
    echo "== $*: $((SECONDS - start)) s"
}

timed make sweep
timed make test
timed make sweep | tee "$log"

if grep ': building' "$log"; then
    echo "the second sweep built what the first had built" >&2
    exit 1
fi
.venv/bin/python - <<'END'
import sys
import polars as pl
found = pl.scan_parquet("results/*/measurements.parquet").select("campaign", "generator").unique().collect()
print(found)
sys.exit(found["generator"].n_unique() != 1 or found["campaign"].n_unique() < 2)
END
# Outside the checkout lie only the cache of pip and the locks of the devices (README).
outside=$(find ~ /tmp /var/tmp /dev/shm -newer ../started -type f -not -path "$PWD/*" -not -path "$log" \
    -not -path "$HOME/.cache/pip/*" -not -path "/tmp/servegrid-locks/*" 2>/dev/null || true)
if [ -n "$outside" ]; then
    echo "files outside the checkout:" >&2
    echo "$outside" >&2
    exit 1
fi
