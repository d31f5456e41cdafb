#!/usr/bin/env bash
# `make image-test`: builds the Dockerfile, runs the command in the image, and serves a bundle in its own image, without a container engine: buildah
# with chroot isolation, on a base that debootstrap makes. Needs root, buildah, debootstrap.
#
# It leaves nothing behind: what it starts and mounts is in namespaces that end with it, however it ends, and its
# folder goes with it; one that a SIGKILL left goes when the next run starts.
set -euo pipefail

alone() {
    local tool left
    for tool in buildah debootstrap ip; do
        command -v "$tool" >/dev/null || { echo "no $tool here: apt-get install buildah debootstrap iproute2" >&2; exit 2; }
    done
    [ "$(id -u)" = 0 ] || { echo "debootstrap and chroot isolation need root" >&2; exit 2; }

    for left in "${TMPDIR:-/var/tmp}"/servegrid-image.*/lock; do # who runs holds its lock
        [ ! -e "$left" ] || flock --nonblock "$left" rm -rf --one-file-system "${left%/lock}" || true
    done
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/servegrid-image.XXXXXX")
    exec 9>"$work/lock"
    flock 9
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc "$0" --in "$work" &
    inner=$!
    trap clean EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    wait "$inner"
}

clean() {
    kill -KILL "$inner" 2>/dev/null || true
    wait "$inner" 2>/dev/null || true
    rm -rf --one-file-system "$work" || { sleep 2; rm -rf --one-file-system "$work"; } # the last ones may still write
}

if [ "${1:-}" != --in ]; then
    alone
    exit
fi

cd "$(dirname "$0")/../.."
SUITE=${SUITE:-bookworm} # its Python is one that the project supports
work=$2
export BUILDAH_ISOLATION=chroot TMPDIR="$work"
buildah=(buildah --root "$work/storage" --runroot "$work/run")

step() {
    local start=$SECONDS
    echo "== $1"
    "${@:2}"
    echo "== $1: $((SECONDS - start)) s"
}

base() {
    # The mirror is the one that apt knows.
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' | awk -v suite="$SUITE" '$2 == suite {print $1; exit}')
    debootstrap --variant=minbase --include=python3,python3-venv,libpython3.11,ca-certificates \
        "$SUITE" "$work/base" ${mirror:+"$mirror"} >"$work/debootstrap.log" || { tail "$work/debootstrap.log"; return 1; }
    # As in NVIDIA's images, pip is held to versions that are too old for the project.
    echo "pydantic==2.11.7" >"$work/base/etc/pip-constraint.txt"
    local container
    container=$("${buildah[@]}" from scratch)
    "${buildah[@]}" config --env PIP_CONSTRAINT=/etc/pip-constraint.txt "$container"
    "${buildah[@]}" add --quiet "$container" "$work/base" / >/dev/null
    "${buildah[@]}" commit --quiet --rm "$container" base >/dev/null
    rm -rf --one-file-system "$work/base"
}

# pip in the build sees what pip here sees: its settings as a secret, the folders that they name as mounts.
pip_settings() {
    echo "[global]"
    python3 -m pip config list | sed -nE "s/^(global|:env:|install)\.([a-z-]+)='(.*)'$/\2 = \3/p" |
        awk '!seen[$1]++' | sed -E 's/ (file:)/\n    \1/g'
}

# A Dockerfile on the base, with pip's settings; the image's name, the folder, and more options.
built() {
    local mounts=() path
    # An index that is a folder refers to files beside it.
    for path in $(sed -nE 's#.*file://(.*)/[^/]+/?$#\1#p; s#.*= (/[^ ]+).*#\1#p' "$work/pip.conf" | sort -u); do
        [ -e "$path" ] && mounts+=(--volume "$path:$path:ro")
    done
    "${buildah[@]}" build --quiet --format docker --build-arg BASE=localhost/base "${@:3}" \
        --secret "id=pip,src=$work/pip.conf" "${mounts[@]}" --tag "$1" "$2" >"$work/$1.log" 2>&1 ||
        { tail -40 "$work/$1.log"; return 1; }
}

image() {
    pip_settings >"$work/pip.conf"
    built servegrid . --build-arg EXTRAS=torch,onnx
}

inside() {
    "${buildah[@]}" run --user servegrid "$worker" -- "$@"
}

image_has() {
    "${buildah[@]}" inspect --type image --format "$1" localhost/servegrid
}

# Nothing runs as root, what is installed is not the user's to change, and no setting of pip is left.
guarded() {
    [ "$(image_has '{{.Docker.Config.User}}')" = servegrid ]
    inside sh -ec '[ "$(id -u)" != 0 ]; [ ! -w /opt/servegrid/venv ]; [ -w "$SERVEGRID_HOME/store" ]; [ ! -e /etc/pip.conf ]'
    inside test -e /opt/servegrid/servegrid/frameworks/__main__.py
    sed -n 's#.*\(file\|https\?\)://##p' "$work/pip.conf" >"$work/places"
    [ -z "$("${buildah[@]}" inspect --type image localhost/servegrid | grep -F -f "$work/places" || true)" ]
}

bundle_builds() {
    inside servegrid bundle "$1" "$2"
    built bundle "$("${buildah[@]}" mount "$worker")$2"
}

# The image of the bundle, without a network: its server answers the bundle's own client.
bundle_answers() {
    local server command
    server=$("${buildah[@]}" from localhost/bundle)
    command=$("${buildah[@]}" inspect --type image --format '{{range .Docker.Config.Cmd}}{{.}} {{end}}' localhost/bundle)
    # shellcheck disable=SC2016,SC2086  # for the inner shell; a list of words
    unshare --net bash -euc 'ip link set lo up; "${@:3}" >"$1" 2>&1 & exec $2' bash "$work/server.log" \
        "${buildah[*]} run --user servegrid $worker -- /opt/servegrid/venv/bin/python $1/client.py --wait 60" \
        "${buildah[@]}" run "$server" -- $command || { tail -40 "$work/server.log"; return 1; }
}

# What the image starts, on a network of its own, until the image's own health check says that it is well.
worker_starts() {
    unshare --net sh -ec 'ip link set lo up; exec "$@"' sh \
        "${buildah[@]}" run --user servegrid "$worker" -- bash -euc '
            trap "kill \$(jobs -p)" EXIT
            export PREFECT_API_URL=http://127.0.0.1:4200/api
            until_well() { for _ in $(seq 90); do python3 -c "$1" 2>/dev/null && return; sleep 1; done; return 1; }
            prefect server start >/tmp/server.log 2>&1 &
            until_well "import urllib.request as u; u.urlopen(\"$PREFECT_API_URL/health\", timeout=4)" || { cat /tmp/server.log; exit 1; }
            servegrid pools create
            prefect --no-prompt deploy --all --prefect-file /opt/servegrid/deployments/prefect.yaml | tail -3
            $1 $2 >/tmp/worker.log 2>&1 &
            until_well "$3" || { cat /tmp/worker.log; exit 1; }
            prefect work-pool ls' bash "$(image_has '{{range .Docker.Config.Entrypoint}}{{.}} {{end}}')" \
        "$(image_has '{{range .Docker.Config.Cmd}}{{.}} {{end}}')" "$(image_has '{{index .Docker.Config.Healthcheck.Test 3}}')"
}

step "base image" base
step "build" image
worker=$("${buildah[@]}" from localhost/servegrid)
step "servegrid doctor" inside servegrid doctor
step "servegrid plan" inside servegrid plan --format onnx --precision fp32 --accelerator none
model=/opt/servegrid/models/_template
step "servegrid sweep" inside servegrid sweep --model-dir "$model" --format onnx --precision fp32 \
    --max-batch-size 1 --max-concurrency 1
bundle=/var/lib/servegrid/bundle
step "bundle's image" bundle_builds _template-tiny-onnx-fp32-b1-c1 "$bundle"
step "bundle's server and client" bundle_answers "$bundle"
step "guarded" guarded
step "worker" worker_starts
echo "image-test: $SECONDS s"
