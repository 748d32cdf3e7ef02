#!/bin/sh
# 'make run' and 'make stop': a server and a mount of it on this host.
#
# All state is in .segue-run, so that a run neither sees nor changes the user's own. Server
# and mount are daemons in sessions of their own: Ctrl-C reaches only this script, which then
# ends the mount before the server, so that everything written has arrived. A lock says
# whether a run is alive; what a killed one left behind, the next one clears away.
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

# Ends the mount and the server, whichever is there.
end_daemons() {
    if is_mounted; then
        "$segue" umount "$mountpoint" || "$segue" umount --now "$mountpoint" || true
    fi
    if [ -S "$state/data/control.sock" ]; then
        "$segue" serve --stop --data "$state/data" >/dev/null 2>&1 || true
    fi
}

# The address of last time, for which this host is enrolled; else 7420; else any free port.
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
        echo "make run: cannot open /dev/fuse, which a mount needs (modprobe fuse; in a" \
            "container --device /dev/fuse --cap-add SYS_ADMIN)" >&2
        exit 1
    fi
    mkdir -p "$state"
    exec 9>"$state/lock"
    if ! flock -n 9; then
        echo "make run: it runs here already; 'make stop' ends it" >&2
        exit 1
    fi
    make --no-print-directory build 9>&-
    end_daemons
    echo $$ >"$state/pid"
    trap end_daemons EXIT
    # A second signal ends what waits for the server, and not the script before the daemons have ended.
    trap 'trap : INT TERM HUP; echo; echo "segue: stopping"; exit 0' INT TERM HUP
    start_daemons
    cat <<EOF

Volume home is at ./mnt-segue. Try, in another terminal:
    cp -r crates mnt-segue/ && du -sh mnt-segue
    $segue status
    $segue where mnt-segue/crates/core/src/lib.rs
    $segue sync mnt-segue
Its server's data and this host's cache are in .segue-run.
Ctrl-C here, or 'make stop' anywhere, unmounts and stops the server.
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
        echo "make stop: nothing runs here"
        return
    fi
    exec 9>"$state/lock"
    if ! flock -n 9; then
        kill "$(cat "$state/pid")"
        flock -w 120 9 || { echo "make stop: the run does not end" >&2; exit 1; }
    fi
    # After a killed run there is nobody else to do it.
    end_daemons
    echo "segue: stopped"
}

case "${1:-run}" in
    run) run ;;
    stop) stop ;;
    *) echo "usage: scripts/run.sh [run|stop]" >&2; exit 2 ;;
esac
