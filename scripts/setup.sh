#!/bin/sh
# Installs the missing Debian packages for building and running (no argument), and also for the
# tests ('test'). Without missing packages it changes nothing and needs no root.
set -eu
cd "$(dirname "$0")/.."

packages="gcc libc6-dev pkg-config make git ca-certificates fuse3"
if [ "${1:-}" = test ]; then
    packages="$packages iproute2 util-linux sshfs rclone openssh-server rsync fio sqlite3 attr strace vim-tiny e2fsprogs"
fi
# Debian 12's own rustc is too old; its security archive has the one that browsers are built with.
if ! scripts/toolchain.sh >/dev/null; then
    packages="$packages rustc-web cargo-web rustfmt-web"
    [ "${1:-}" != test ] || packages="$packages rust-web-clippy"
fi

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system: install the missing ones of these by hand: $packages" >&2
    exit 0
fi
missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

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
