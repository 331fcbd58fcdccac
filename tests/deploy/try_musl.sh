#!/usr/bin/env bash
# The whole program with musl in place of glibc (musl-tools), in one static file; and tests.
#
#   tests/deploy/try_musl.sh [TEST...]       with the network, for apt-get source
#
# The libraries are built from Debian's sources (scripts/build-libraries.sh). Lines are read without
# libedit, and nothing is downloaded: a static program opens no libcurl, and no driver of a GPU either.
set -euo pipefail
cd "$(dirname "$0")/../.."
libraries=$(pwd)/build/musl/libraries
tests=${*:-unit/test_base unit/test_tokenizer unit/test_session unit/test_batcher unit/test_conversation
    unit/test_grammar unit/test_file_write unit/test_gguf unit/test_safetensors unit/test_unpack unit/test_image
    unit/test_cli_run unit/test_cli_embed server/test_fields server/test_images golden/test_golden}
command -v musl-gcc >/dev/null || { echo "try_musl: musl-tools is missing" >&2; exit 1; }
scripts/build-libraries.sh musl "$libraries"

# The kernel's own headers (futex) are glibc's neighbours; musl's go first.
export PKG_CONFIG_LIBDIR=$libraries/lib/pkgconfig
make -j2 B=build/musl CC="${MUSL_CC:-musl-gcc}" NVCC= VULKAN= CURL= MPICC= IMAGES=yes EDIT= WERROR= SAN= \
    LIBS="$(pkg-config --static --libs libevent_openssl libssl libcrypto libevent libpcre2-8 libutf8proc jansson libjpeg libpng libwebp)" \
    OPT="-O3 -g1 -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu" \
    LDFLAGS="-static" build/musl/lace $(printf 'build/musl/tests/%s ' $tests)
file -b build/musl/lace
ls -l build/musl/lace | awk '{print "lace: " $5 " bytes"}'
build/musl/lace --version
build/musl/lace run -p "Once upon a time" -n 43 --seed 8 >build/musl/run.txt
cat build/musl/run.txt
if [ -x build/lace ]; then
    build/lace run -p "Once upon a time" -n 43 --seed 8 2>/dev/null | cmp - build/musl/run.txt
    echo "the same text as with glibc"
fi

echo "== serve"
build/musl/lace serve models/tales-4m.gguf --port 18083 >build/musl/serve.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 100); do curl -sf http://127.0.0.1:18083/health >/dev/null && break; sleep 0.3; done
curl -s -H 'Content-Type: application/json' http://127.0.0.1:18083/v1/completions \
    -d '{"prompt": "The king", "max_tokens": 8, "temperature": 0}' | cut -c 1-200
echo
kill $server
wait $server || true
LACE_SHARED=none LACE_BIN=build/musl/lace scripts/run-tests.pl $(printf 'build/musl/tests/%s ' $tests)
