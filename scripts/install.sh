#!/bin/sh
# 'make install' and 'make uninstall': copies what 'make build' has built, or removes it again.
# Nothing is built or fetched here, so that root runs nothing but this script.
#
# From make: PREFIX, HELPERS, SYSTEMD, TARGET. DESTDIR is put before every path, for packages.
set -eu
cd "$(dirname "$0")/.."
root=${DESTDIR:-}
built=$TARGET/release/segue
program=$PREFIX/bin/segue

fail() {
    echo "make install: $1" >&2
    exit 1
}

# Every path that is installed.
installed() {
    cat <<END
$program
$HELPERS/mount.segue
$HELPERS/mount.fuse.segue
$SYSTEMD/system-sleep/segue
$PREFIX/share/bash-completion/completions/segue
$PREFIX/share/zsh/site-functions/_segue
$PREFIX/share/fish/vendor_completions.d/segue.fish
${SYSTEMD%/*}/sysusers.d/segue.conf
END
    units | sed "s|^|$SYSTEMD/|"
}

# The units, as below systemd's own directory.
units() {
    for unit in packaging/systemd/*.service packaging/systemd/*.timer; do
        echo "system/${unit##*/}"
    done
    for unit in packaging/systemd/user/*; do
        echo "user/${unit##*/}"
    done
}

# Copies a packaged file, with the place where the program is.
place() {
    sed "s|/usr/local/bin/segue|$program|" "$1" > "$2"
    chmod "$3" "$2"
}

if [ "${1:-}" = uninstall ]; then
    installed | while IFS= read -r path; do
        if [ -e "$root$path" ] || [ -L "$root$path" ]; then
            rm -f "$root$path" || exit 1
            echo "removed $root$path"
        fi
    done
    echo "caches, identities and served volumes stay: see ~/.local/state/segue and ~/.config/segue"
    exit
fi

[ -x "$built" ] || fail "$built is not there: run 'make build' first"
installed | while IFS= read -r path; do
    mkdir -p "$root${path%/*}" || exit 1
done || fail "no permission to write below ${root:-/}: run it as root, or give PREFIX or DESTDIR"

# The new program replaces the old one in one step. Running mounts and servers keep the old one.
new=$root$program.new
trap 'rm -f "$new"' EXIT
install -m 755 "$built" "$new"
if command -v strip >/dev/null; then
    strip "$new"
else
    echo "make install: strip is missing (package binutils): the program keeps its symbols" >&2
fi
for shell in bash zsh fish; do
    case $shell in
        bash) to=$PREFIX/share/bash-completion/completions/segue ;;
        zsh) to=$PREFIX/share/zsh/site-functions/_segue ;;
        fish) to=$PREFIX/share/fish/vendor_completions.d/segue.fish ;;
    esac
    "$built" completions "$shell" > "$root$to"
    chmod 644 "$root$to"
done
mv -f "$new" "$root$program"
ln -sfn "$program" "$root$HELPERS/mount.segue"
ln -sfn "$program" "$root$HELPERS/mount.fuse.segue"
place packaging/systemd/segue.sleep "$root$SYSTEMD/system-sleep/segue" 755
place packaging/sysusers/segue.conf "$root${SYSTEMD%/*}/sysusers.d/segue.conf" 644
for unit in $(units); do
    place "packaging/systemd/${unit#system/}" "$root$SYSTEMD/$unit" 644
done
installed | while IFS= read -r path; do
    echo "installed $root$path"
done
