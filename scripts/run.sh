#!/bin/sh
# 'make run' and 'make stop': a server and a mount of it on this host.
#
# All state is in .segue-run, so that a run neither sees nor changes the user's own. Server
# and mount are daemons in sessions of their own: Ctrl-C reaches only this script. The script
# then ends the mount before the server, so that all changes reach the server. A lock shows
# whether a run is active. The next run ends the daemons of a killed one.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
state=$root/.segue-run
mountpoint=$root/mnt-segue
segue=${CARGO_TARGET_DIR:-target}/release/segue
export XDG_CONFIG_HOME="$state/config" XDG_STATE_HOME="$state/state"

is_mounted() {
    grep -F ' - fuse.segue ' /proc/self/mountinfo | cut -d ' ' -f 5 \
        | grep -qxF "$(printf %s "$mountpoint" | sed 's/ /\\040/g')"
}

# Ends the mount and the server, as far as they exist.
end_daemons() {
    if is_mounted; then
        "$segue" umount "$mountpoint" || "$segue" umount --now "$mountpoint" || true
    fi
    if [ -S "$state/data/control.sock" ]; then
        "$segue" serve --stop --data "$state/data" >/dev/null 2>&1 || true
    fi
}

# The address of the last run, for which this host is enrolled; else 7420; else any free port.
choose_address() {
    for address in $(cat "$state/address" 2>/dev/null) 127.0.0.1:7420; do
        # The kernel's table has ports in hexadecimal.
        port=$(printf ':%04X ' "${address##*:}")
        if ! grep -q "$port" /proc/net/udp /proc/net/udp6 2>/dev/null; then
            echo "$address"
            return
        fi
    done
    echo 127.0.0.1:0
}

start_daemons() {
    served=$("$segue" serve --detach --data "$state/data" --listen "$(choose_address)" 9>&-)
    echo "$served"
    address=${served##* }
    mkdir -p "$mountpoint"
    if [ "$(cat "$state/address" 2>/dev/null)" = "$address" ]; then
        "$segue" mount "segue://$address/home" "$mountpoint" 9>&-
    else
        "$segue" invite --data "$state/data" --host "${address%:*}" \
            | "$segue" mount - "$mountpoint" 9>&-
        echo "$address" >"$state/address"
    fi
}

run() {
    if ! { [ -c /dev/fuse ] && (: <>/dev/fuse) 2>/dev/null; }; then
        echo "make run: cannot open /dev/fuse, which a mount needs: run 'modprobe fuse', or start" \
            "the container with --device /dev/fuse --cap-add SYS_ADMIN" >&2
        exit 1
    fi
    mkdir -p "$state"
    exec 9>"$state/lock"
    if ! flock -n 9; then
        echo "make run: a run of this directory is active already; 'make stop' ends it" >&2
        exit 1
    fi
    make --no-print-directory build 9>&-
    end_daemons
    echo $$ >"$state/pid"
    trap end_daemons EXIT
    # A second signal ends commands that wait for the server, but not this script: the daemons end
    # first.
    trap 'trap : INT TERM HUP; echo; echo "segue: stopping"; exit 0' INT TERM HUP
    start_daemons
    cat <<EOF

Volume home is at ./mnt-segue. Try, in another terminal:
    cp -r crates mnt-segue/ && du -sh mnt-segue
    $segue status
    $segue where mnt-segue/crates/core/src/lib.rs
    $segue sync mnt-segue
The server's data and this host's cache are in .segue-run.
Ctrl-C here, or 'make stop' in another terminal, unmounts the volume and stops the server.
EOF
    while is_mounted; do
        # In the background, because a shell handles signals only between commands.
        sleep 1 9>&- &
        wait $!
    done
    echo "segue: $mountpoint was unmounted"
}

stop() {
    if [ ! -d "$state" ]; then
        echo "make stop: no run of this directory is active"
        return
    fi
    exec 9>"$state/lock"
    if ! flock -n 9; then
        kill "$(cat "$state/pid")"
        flock -w 120 9 || { echo "make stop: the run has not ended within 120 s" >&2; exit 1; }
    fi
    # A killed run did not end its daemons.
    end_daemons
    echo "segue: stopped"
}

case "${1:-run}" in
    run) run ;;
    stop) stop ;;
    *) echo "usage: scripts/run.sh [run|stop]" >&2; exit 2 ;;
esac
