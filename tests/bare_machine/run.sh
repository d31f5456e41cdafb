#!/usr/bin/env bash
# run.sh COMMAND: runs COMMAND in a clone of this checkout on a bare Debian, as an ordinary user. Needs root and
# debootstrap.
#
# The machine has python3, python3-venv, make and git; no compiler, libpython, CUDA, browser or database. SUITE
# names the release (default bookworm). It is gone when the command has ended; KEEP=FOLDER keeps it there, and a
# next run with the same folder goes on with it. With NETWORK=none it has loopback only (and needs `ip`, of iproute2).
set -euo pipefail
cd "$(dirname "$0")/../.."

[ "$(id -u)" = 0 ] || { echo "chroot needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "no debootstrap here: apt-get install debootstrap" >&2; exit 2; }
suite=${SUITE:-bookworm}
for left in "${TMPDIR:-/var/tmp}"/servegrid-bare.*/lock; do # a run holds its lock: this one was killed
    [ ! -e "$left" ] || flock --nonblock "$left" rm -rf --one-file-system "${left%/lock}" || true
done
folder=${KEEP:-$(mktemp -d "${TMPDIR:-/var/tmp}/servegrid-bare.XXXXXX")}
root=$folder/root
home=$root/home/user
exec 9>"$folder/lock"
flock 9
machine=
clean() {
    [ -z "$machine" ] || kill -KILL "$machine" 2>/dev/null || true
    wait
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$folder"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ ! -e "$folder/complete" ]; then
    mkdir -p "$root"
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' |
        awk -v suite="$suite" '$2 == suite {print $1; exit}')
    debootstrap --variant=minbase --include=python3,python3-venv,make,git,ca-certificates,procps \
        "$suite" "$root" ${mirror:+"$mirror"} >"$folder/debootstrap.log" ||
        { tail "$folder/debootstrap.log" >&2; exit 1; }
    chroot "$root" useradd --create-home --shell /bin/bash user
    touch "$folder/complete"
fi
cp -r /etc/ssl/certs "$root/etc/ssl/"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
if [ ! -d "$home/checkout" ]; then
    git clone --quiet . "$home/checkout"
    chroot "$root" chown -R user:user /home/user
fi

# pip there reads what pip here reads: its settings, and the folders that they name.
folders=()
{
    echo "[global]"
    python3 -m pip config list | sed -nE "s/^(global|:env:|install)\.([a-z-]+)='(.*)'$/\2 = \3/p" | awk '!seen[$1]++'
} >"$root/etc/pip.conf"
for path in $(grep -oE '(file://)?/[A-Za-z0-9_./-]+' "$root/etc/pip.conf" | sed 's#^file://##; s#/simple$##' | sort -u); do
    case $path in /etc/ssl/* | /usr/*) continue ;; esac
    if [ -d "$path" ]; then
        mkdir -p "$root$path"
        folders+=("$path")
    elif [ -f "$path" ]; then
        install -D --mode 644 "$path" "$root$path"
    fi
done
mapfile -t proxies < <(env | grep -iE '^(https?|no)_proxy=' || true)

# What is mounted and started is in namespaces that end with the command, however it ends.
# shellcheck disable=SC2016
setpriv --pdeathsig KILL unshare --mount --pid --ipc ${NETWORK:+--net} --fork --kill-child bash -euc '
    [ -z "${NETWORK:-}" ] || ip link set lo up
    root=$1 command=$2 proxies=$3
    shift 3
    for path in "${@:1:proxies}"; do settings+=("$path"); done
    shift "$proxies"
    for path in "$@"; do mount --bind --options ro "$path" "$root$path"; done
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    for device in null zero full random urandom tty; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 pts "$root/dev/pts" || true
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    # Not by exec: a change of user would take the death signal off this shell, whose end ends all the others.
    chroot --userspec=user:user "$root" /usr/bin/env -i HOME=/home/user USER=user LANG=C.UTF-8 TERM=dumb \
        PATH=/usr/local/bin:/usr/bin:/bin ${settings[@]+"${settings[@]}"} bash -c "cd ~/checkout && $command" &&
        exit 0 || exit $?
' bare "$root" "$1" "${#proxies[@]}" ${proxies[@]+"${proxies[@]}"} ${folders[@]+"${folders[@]}"} <&0 &
machine=$!
wait "$machine"
