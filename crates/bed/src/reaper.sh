# Clean-up of one test bed. Arguments: prefix of its namespaces, its directory.
# Everything here may already be gone, so single failures do not matter; what is still there
# at the end is reported.
prefix=$1
dir=$2
[ -n "$prefix" ] && [ -n "$dir" ] || exit 2

namespaces() {
    for file in /run/netns/"$prefix"-*; do
        [ -e "$file" ] && echo "${file##*/}"
    done
}

pids() {
    for ns in $(namespaces); do ip netns pids "$ns" 2>/dev/null; done
}

# Mount points below the directory, deepest first, still escaped as in mountinfo.
mounts() {
    awk -v below="$dir/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r
}

unmount_all() {
    mounts | while IFS= read -r escaped; do
        target=$(printf '%b' "$(printf '%s' "$escaped" | sed 's/\\/\\0/g')")
        # -f first: it aborts a FUSE connection, which frees whoever hangs in it.
        umount -f "$target" 2>/dev/null || umount -l "$target" 2>/dev/null
    done
}

# Paths of the sockets that programs of the bed listen on (flag 10000): killed, they cannot remove
# them. The table also has the other end of each connection that was made from here, with the path
# of another bed's socket.
sockets() {
    for ns in $(namespaces); do
        nsenter --net=/run/netns/"$ns" awk '$4 == "00010000" && $8 ~ "^/" { print $8 }' \
            /proc/net/unix 2>/dev/null
    done
    cat "$dir/sockets" 2>/dev/null
}

end_all() {
    orphans="$orphans $(sockets)"
    tries=0
    while [ "$tries" -lt 100 ]; do
        running=$(pids)
        [ -n "$running" ] && kill -9 $running 2>/dev/null
        unmount_all
        [ -z "$running" ] && [ -z "$(mounts)" ] && break
        tries=$((tries + 1))
        sleep 0.05
    done
}

# A line: what runs ends now, and the files stay. End of file: the owner let go or died.
orphans=
while read -r _; do
    end_all
    echo ended
done
end_all

for socket in $orphans; do [ -S "$socket" ] && rm -f "$socket"; done
for ns in $(namespaces); do ip netns delete "$ns" 2>/dev/null; done
# --one-file-system: a mount that could not be removed keeps its contents.
rm -rf --one-file-system "$dir" 2>/dev/null

left="$(pids) $(mounts) $(namespaces)"
[ -z "${left# }" ] || [ "$left" = "  " ] || echo "segue-bed: could not remove: $left" >&2
