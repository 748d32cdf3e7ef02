#!/bin/sh
# Prints the directory of the first cargo that is new enough (Cargo.toml's rust-version);
# fails if there is none. A host may have Debian's old cargo first and rustup's behind it.
set -eu
cd "$(dirname "$0")/.."
needed=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' Cargo.toml)

for directory in $(printf %s "$PATH" | tr ':' ' ') "${HOME:-/root}/.cargo/bin" /usr/bin; do
    [ -x "$directory/cargo" ] || continue
    found=$("$directory/cargo" --version 2>/dev/null | cut -d ' ' -f 2) || continue
    oldest=$(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1)
    if [ "$oldest" = "$needed" ]; then
        echo "$directory"
        exit 0
    fi
done
exit 1
