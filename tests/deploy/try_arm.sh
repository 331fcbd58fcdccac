#!/usr/bin/env bash
# The whole program for aarch64, cross-compiled, under qemu: run, serve, and test programs.
#
#   tests/deploy/try_arm.sh [all|TEST...]        with the network, for Debian's libraries of arm64
#
# Tests that only start the program are programs of this machine, and start the one of arm64; the others are
# programs of arm64 themselves. `all` takes every test program that can be tried so.
#
# Images are not read there: they are decoded behind seccomp, which qemu's programs do not have.
# The libraries are unpacked into build/arm64/root; nothing is installed on this machine. `make arm` checks
# the kernels of each level alone, and needs none of this.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$(pwd)/build/arm64/root
inside="unit/test_base unit/test_tokenizer unit/test_session unit/test_batcher unit/test_conversation
    unit/test_grammar unit/test_sampler unit/test_gguf unit/test_safetensors unit/test_unpack golden/test_golden"
outside="unit/test_cli_run unit/test_cli_embed server/test_fields"
# They start a make or a compiler, load a library of this machine, or read images. In test_hf_packed and test_plan gcc 12
# for aarch64 ends with an internal error.
not_here="unit/test_cuda_driver unit/test_examples unit/test_hf_packed unit/test_image unit/test_makefile
    unit/test_named_device unit/test_nccl unit/test_plan unit/test_rank_mpi unit/test_soft_card server/test_images"
. tests/deploy/choose_tests.sh
packages="libc6 libgcc-s1 libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev libjansson4 libjansson-dev
    libevent-2.1-7 libevent-core-2.1-7 libevent-extra-2.1-7 libevent-openssl-2.1-7 libevent-pthreads-2.1-7
    libevent-dev libssl3 libssl-dev libedit2 libedit-dev libbsd0 libbsd-dev libmd0 libmd-dev libtinfo6
    libncurses-dev libncurses6 zlib1g zlib1g-dev libjpeg62-turbo libjpeg62-turbo-dev libpng16-16
    libpng-dev libwebp7 libwebp-dev"
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null || { echo "try_arm: $tool is missing" >&2; exit 1; }
done

if [ ! -e "$root/.unpacked" ]; then
    echo "== libraries of arm64"
    apt=$root/apt
    mkdir -p "$apt/lists/partial" "$apt/debs"
    own="-o Dir::State::Lists=$apt/lists -o Dir::State::status=/dev/null -o Dir::Cache::pkgcache=
        -o Dir::Cache::srcpkgcache= -o APT::Architecture=arm64 -o APT::Architectures=arm64"
    apt-get $own update -q >/dev/null
    (cd "$apt/debs" && apt-get $own download -q $packages >/dev/null)
    for deb in "$apt"/debs/*.deb; do dpkg -x "$deb" "$root"; done
    rm -rf "$apt"
    # Links of libraries that lead out of the folder would lead into this machine.
    find "$root" -type l -lname '/*' | while read -r link; do
        ln -sfn "$root$(readlink "$link")" "$link"
    done
    touch "$root/.unpacked"
fi

# Tests that start the program, and the program that they are compared with.
make -j2 build/lace $(in_folder build/tests '' $outside)

export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
export QEMU_LD_PREFIX=$root
libs=$root/usr/lib/aarch64-linux-gnu
make -j2 B=build/arm64 CC=aarch64-linux-gnu-gcc LD=aarch64-linux-gnu-ld OBJCOPY=aarch64-linux-gnu-objcopy \
    NVCC= VULKAN= OPT="-O3 -g1 -I$root/usr/include -I$root/usr/include/aarch64-linux-gnu" \
    LDFLAGS="-Wl,--as-needed -L$libs -Wl,-rpath-link,$libs -Wl,-rpath-link,$root/lib/aarch64-linux-gnu" \
    build/arm64/lace build/arm64/liblace.so $(in_folder build/arm64/tests '' $inside)
file -bL build/arm64/lace build/arm64/liblace.so | cut -c 1-70

# A program that runs the one of arm64, for tests that start it.
printf '#!/bin/sh\nexec qemu-aarch64 -cpu max %s/build/arm64/lace "$@"\n' "$(pwd)" >build/arm64/lace-here
chmod +x build/arm64/lace-here
build/arm64/lace-here run -p "Once upon a time" -n 30 --seed 8
build/lace run -p "Once upon a time" -n 30 --seed 8 2>/dev/null

echo "== serve"
build/arm64/lace-here serve --port 18081 >build/arm64/serve.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 100); do curl -sf http://127.0.0.1:18081/health >/dev/null && break; sleep 0.3; done
curl -s -H 'Content-Type: application/json' http://127.0.0.1:18081/v1/completions -d '{"prompt": "The king", "max_tokens": 8, "temperature": 0}' |
    cut -c 1-200
echo
kill $server
wait $server || true

for test in $inside; do
    name=build/arm64/$(basename $test).sh
    printf '#!/bin/sh\nexec qemu-aarch64 -cpu max build/arm64/tests/%s\n' "$test" >$name
    chmod +x $name
done
LACE_SHARED=none LACE_BIN=build/arm64/lace-here scripts/run-tests.pl \
    $(for test in $inside; do echo "build/arm64/$(basename $test).sh"; done) $(in_folder build/tests '' $outside)
