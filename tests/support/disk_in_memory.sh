#!/bin/sh
# Runs a command whose temporary files are on a disk in memory: a real file system, which syncs without waiting for
# a disk that others use too. Without root, loop devices or much memory, they are where they always are.
#
#     disk_in_memory.sh COMMAND...
#
# The disk is mounted where no other process sees it, and is gone with the last process of the command, however that ends.
set -eu
place=/run/resumerge-tests
size=16 # GB; only what is written takes memory

if [ "${1:-}" = --mounted ]; then
    shift
    image=$(mktemp /dev/shm/resumerge-tests.XXXXXX)
    trap 'rm -f "$image"' EXIT
    truncate --size "${size}G" "$image"
    mkfs.ext4 -q -F -m 0 -E lazy_itable_init=1,lazy_journal_init=1 "$image"
    mount -o loop,discard,noatime "$image" "$place"
    rm -f "$image" # the mounted loop device holds it
    trap - EXIT
    export TMPDIR="$place"
    exec "$@"
fi

available=$(awk '/^MemAvailable/ { print int($2 / 1024 / 1024) }' /proc/meminfo 2>/dev/null || echo 0)
free=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1 || echo 0)
if [ "$available" -ge "$size" ] && [ "$free" -ge "$size" ] && mkdir -p "$place" 2>/dev/null \
    && unshare --mount "$0" --mounted true 2>/dev/null; then
    exec unshare --mount "$0" --mounted "$@"
fi
echo "$(basename "$0"): the tests' files are on the disk (root, loop devices, $size GB of memory: not all are here)" >&2
exec "$@"
