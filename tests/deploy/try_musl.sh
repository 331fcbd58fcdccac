#!/usr/bin/env bash
# lace with musl in place of glibc (musl-tools): the library and its tests, in one static file each.
#
#   tests/deploy/try_musl.sh [TEST...]       with the network, for apt-get source
#
# PCRE2, utf8proc and jansson are built from Debian's sources into build/musl/prefix. The program itself
# is not built: libevent, OpenSSL and libedit would have to be, too.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$(pwd)
prefix=$top/build/musl/prefix
tests=${*:-test_base test_tokenizer test_session test_batcher test_conversation test_grammar test_file_write}
command -v musl-gcc >/dev/null || { echo "try_musl: musl-tools is missing" >&2; exit 1; }
mkdir -p "$prefix/src"

# apt with lists of its own: the machine's stay as they are.
apt_source() {
    local lists=$prefix/apt
    mkdir -p "$lists/lists/partial"
    echo "deb-src http://deb.debian.org/debian bookworm main" >"$lists/sources.list"
    set -- -o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$lists/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
    [ -e "$lists/.updated" ] || apt-get "${@:1:10}" update -q && touch "$lists/.updated"
    apt-get "${@:1:10}" source -q "${@:11}"
}

# unpack PACKAGE: its sources; prints the folder.
unpack() {
    (cd "$prefix/src" && ls -d "$1"-*/ >/dev/null 2>&1 || apt_source "$1" >"$prefix/apt.log" 2>&1)
    ls -d "$prefix/src/$1"-*/
}

# PACKAGE CONFIGURE-OPTIONS...
build() {
    local from
    from=$(unpack "$1")
    shift
    echo "== $(basename "$from")"
    (cd "$from" && { [ -e configure ] || autoreconf -fi; } && CC=musl-gcc ./configure --host=x86_64-linux-musl --prefix="$prefix" --disable-shared \
        "$@" && make -j2 && make install) >"$prefix/log" 2>&1 || { tail "$prefix/log"; exit 1; }
}

[ -e "$prefix/lib/libjansson.a" ] || build jansson
# Archives, unlike shared libraries, collide.
objcopy --redefine-sym utf8_encode=jansson_utf8_encode "$prefix/lib/libjansson.a"
[ -e "$prefix/lib/libpcre2-8.a" ] || build pcre2 --enable-jit --disable-pcre2grep-jit
if [ ! -e "$prefix/lib/libutf8proc.a" ]; then
    from=$(unpack utf8proc)
    echo "== $(basename "$from")"
    make -C "$from" CC=musl-gcc prefix="$prefix" libutf8proc.a libutf8proc.pc >"$prefix/log" 2>&1
    install -D -m 644 "$from/libutf8proc.a" "$prefix/lib/libutf8proc.a"
    install -D -m 644 "$from/libutf8proc.pc" "$prefix/lib/pkgconfig/libutf8proc.pc"
    install -D -m 644 "$from/utf8proc.h" "$prefix/include/utf8proc.h"
fi

# The kernel's own headers (futex) are glibc's neighbours; musl's go first.
export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig
make -j2 B=build/musl CC=musl-gcc NVCC= VULKAN= WERROR= \
    LIBS_PKG="libpcre2-8 libutf8proc jansson" SAN= \
    OPT="-O3 -g1 -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu" \
    LDFLAGS="-static" build/musl/examples/complete $(printf 'build/musl/tests/unit/%s ' $tests)
file -b build/musl/examples/complete
build/musl/examples/complete models/tales-4m.gguf "The king" | head -c 200
echo
scripts/run-tests.pl $(printf 'build/musl/tests/unit/%s ' $tests)
