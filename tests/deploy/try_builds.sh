#!/usr/bin/env bash
# Builds as others do them: from the archive, without git, in a path with spaces, one step at a time,
# without nvcc; and from a clone to the demo, with the time that it takes.
#
#   tests/deploy/try_builds.sh [archive|clone]
#
# CCACHE_DISABLE=1 shows what it takes without a cache of compiled files.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$(pwd)
what=${1:-archive clone}
place="$top/build/a place with spaces"

for each in $what; do
    rm -rf "$place"
    mkdir -p "$place"
    case $each in
    archive)
        make --no-print-directory dist
        tar -xzf build/lace-*.tar.gz -C "$place"
        cd "$place"/lace-*
        env -u MAKEFLAGS make -j1 NVCC= WERROR=-Werror all build/tests/unit/test_makefile \
            build/tests/unit/test_conversation >"$place/log" 2>&1 || { tail "$place/log"; exit 1; }
        build/lace run -p "Once upon a time" -n 10 --seed 8
        LACE_SHARED=none LACE_BIN=build/lace scripts/run-tests.pl build/tests/unit/test_makefile \
            build/tests/unit/test_conversation
        make NVCC= install DESTDIR="$place/root" >/dev/null && "$place/root/usr/local/bin/lace" --version
        ;;
    clone)
        cd "$place"
        time (git clone -q "$top" lace && cd lace && env -u MAKEFLAGS make NVCC= demo 2>&1 | tail -n 4)
        ;;
    esac
    cd "$top"
done
rm -rf "$place"
