#!/usr/bin/env bash
# The libraries that lace needs, as archives for a machine that Debian has none for, from Debian's sources.
#
#   scripts/build-libraries.sh windows|musl FOLDER      with the network, for apt-get source
#
# FOLDER gets include/, lib/ and lib/pkgconfig/. What is there already is not built again. A build of lace
# finds it with PKG_CONFIG_LIBDIR=FOLDER/lib/pkgconfig. libedit is left out: lace then reads plain lines.
# Those of images are for musl alone, and want cmake: on Windows no image is read.
set -euo pipefail
kind=${1:?windows or musl} prefix=${2:?a folder}
mkdir -p "$prefix/src"
prefix=$(cd "$prefix" && pwd)
jobs=$(nproc)

case $kind in
windows)
    host=x86_64-w64-mingw32 cc=$host-gcc ar=$host-ar ranlib=$host-ranlib objcopy=$host-objcopy
    # Their headers must not speak of DLLs.
    openssl_target=mingw64 flags="-O2 -DPCRE2_STATIC"
    ;;
musl)
    host=x86_64-linux-musl cc=musl-gcc ar=ar ranlib=ranlib objcopy=objcopy
    # The kernel's own headers are glibc's neighbours; musl's go first.
    openssl_target=linux-x86_64
    flags="-O2 -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu"
    ;;
*) echo "build-libraries: windows or musl, not $kind" >&2; exit 1 ;;
esac
command -v $cc >/dev/null || { echo "build-libraries: $cc is missing" >&2; exit 1; }

# apt with lists of its own, for the sources of the packages that this machine takes: its own lists stay
# as they are.
own=$prefix/apt
apt_own() {
    "$@" -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$own/sources" \
        -o Dir::State::Lists="$own/lists" -o Dir::Cache="$own/cache"
}

# sources PACKAGE: unpacks them, and prints the folder.
sources() {
    if ! ls -d "$prefix/src/$1"-*/ >/dev/null 2>&1; then
        if [ ! -e "$own/updated" ]; then
            mkdir -p "$own/sources" "$own/lists/partial" "$own/cache/archives/partial"
            for list in /etc/apt/sources.list.d/*.sources; do
                [ ! -e "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$own/sources/$(basename "$list")"
            done
            if [ -e /etc/apt/sources.list ]; then
                sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$own/sources/machine.list"
            fi
            apt_own apt-get update >"$prefix/log" 2>&1
            touch "$own/updated"
        fi
        # The newest version that can be had: some mirrors list more than they give.
        for version in $(apt_own apt-cache showsrc "$1" | sed -n 's/^Version: //p' | sort -Vru); do
            (cd "$prefix/src" && apt_own apt-get source "$1=$version" >"$prefix/log" 2>&1) && break
        done
    fi
    ls -d "$prefix/src/$1"-*/
}

# made NAME COMMAND...: runs it in the folder of the sources, unless lib/NAME.a is there.
made() {
    local archive=$1 package=$2 from
    shift 2
    [ ! -e "$prefix/lib/$archive.a" ] || return 0
    from=$(sources "$package") || { tail "$prefix/log"; exit 1; }
    echo "== $(basename "$from")"
    (cd "$from" && "$@") >"$prefix/log" 2>&1 || { tail -20 "$prefix/log"; exit 1; }
}

# configured OPTION...: what most packages want. Patches may be newer than what autoconf made of them:
# that must not be made again, by another version of it.
as_is="AUTOMAKE=: AUTOCONF=: AUTOHEADER=: ACLOCAL=:"
configured() {
    { [ -e configure ] || autoreconf -fi; } &&
        CC=$cc CFLAGS=$flags PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig \
            ./configure --host=$host --prefix="$prefix" --disable-shared --enable-static "$@" &&
        make -j"$jobs" $as_is && make install $as_is
}

utf8proc() {
    # A program that links the archive must not look for a DLL.
    make CC=$cc AR=$ar CFLAGS="$flags -DUTF8PROC_STATIC" prefix="$prefix" libutf8proc.a libutf8proc.pc &&
        sed -i 's/^Cflags:.*/& -DUTF8PROC_STATIC/' libutf8proc.pc &&
        install -D -m 644 libutf8proc.a "$prefix/lib/libutf8proc.a" &&
        install -D -m 644 libutf8proc.pc "$prefix/lib/pkgconfig/libutf8proc.pc" &&
        install -D -m 644 utf8proc.h "$prefix/include/utf8proc.h"
}

jansson() {
    # Archives, unlike shared libraries, collide: lace has a function of this name.
    configured && $objcopy --redefine-sym utf8_encode=jansson_utf8_encode "$prefix/lib/libjansson.a"
}

openssl() {
    CC=$cc AR=$ar RANLIB=$ranlib WINDRES=$host-windres ./Configure $openssl_target --prefix="$prefix" --libdir=lib \
        no-shared no-tests no-module no-legacy no-engine no-comp no-ktls no-afalgeng $flags &&
        make -j"$jobs" build_libs && make install_dev
}

zlib() {
    CC=$cc CFLAGS=$flags ./configure --prefix="$prefix" --static && make -j"$jobs" libz.a && make install
}

# Without its assembler, which would want nasm: it is the slower one.
jpeg() {
    cmake -S . -B made -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=$cc -DCMAKE_C_FLAGS="$flags" \
        -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR="$prefix/lib" \
        -DENABLE_SHARED=OFF -DWITH_SIMD=OFF -DWITH_TURBOJPEG=OFF &&
        make -C made -j"$jobs" && make -C made install
}

made libutf8proc utf8proc utf8proc
made libjansson jansson jansson
made libpcre2-8 pcre2 configured --enable-jit --disable-pcre2grep-jit
made libssl openssl openssl
# Last, because it uses OpenSSL.
made libevent libevent configured --disable-samples --disable-libevent-regress --disable-debug-mode
if [ $kind = musl ]; then
    made libz zlib zlib
    made libjpeg libjpeg-turbo jpeg
    made libpng16 libpng1.6 configured CPPFLAGS="-I$prefix/include" LDFLAGS="-L$prefix/lib"
    made libwebp libwebp configured --disable-libwebpmux --disable-libwebpdemux --disable-png --disable-jpeg \
        --disable-tiff --disable-gif --disable-gl --disable-sdl
fi
echo "$prefix: $(cd "$prefix/lib" && echo *.a)"
