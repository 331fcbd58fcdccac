#!/usr/bin/env bash
# lace for Windows, cross-compiled with mingw-w64, under wine: run, serve, and test programs.
#
#   tests/deploy/try_windows.sh [all|TEST...]     with the network, for apt-get source
#
# Wants gcc-mingw-w64-x86-64-posix, wine64, curl, and what build-libraries.sh wants: automake and libtool.
# Its state is in build/windows/wine; the user's own wine is left alone. By hand: it takes a quarter of an
# hour of one core, most of it OpenSSL and kernels.
#
# Tests that start the program are Linux programs, and start lace.exe; the others run in wine themselves. The usual
# choice takes minutes, `all` takes every test program that can be tried so, and most of an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$(pwd)
B=build/windows
inside="unit/test_base unit/test_tokenizer unit/test_session unit/test_batcher unit/test_conversation unit/test_grammar
    unit/test_sampler unit/test_chat_templates unit/test_gguf unit/test_gguf_write unit/test_safetensors unit/test_page_store
    unit/test_record_log unit/test_unpack unit/test_vocab unit/test_hf_dir unit/test_store unit/test_convert golden/test_golden"
outside="unit/test_cli_run unit/test_cli_embed server/test_fields"
# They start a make or a compiler, copy or kill a process, have a card of software, or are about what is not there.
not_here="unit/test_bulk_copy unit/test_cost_files unit/test_cost_tokenizers unit/test_cuda_driver unit/test_examples
    unit/test_gguf_sweep unit/test_image unit/test_killed unit/test_load_faults unit/test_makefile
    unit/test_named_device unit/test_nccl unit/test_pull unit/test_rank_mpi unit/test_soft_card unit/test_terminal
    unit/test_vulkan unit/test_warp_group unit/test_warp_matrix server/test_images server/test_lost_device
    server/test_models"
. tests/deploy/choose_tests.sh
wine=$(command -v wine64 || ls /usr/lib/wine/wine64 2>/dev/null || true)
for tool in x86_64-w64-mingw32-gcc curl "${wine:-wine64}"; do
    command -v "$tool" >/dev/null || { echo "try_windows: $tool is missing" >&2; exit 1; }
done
export WINEPREFIX=$top/$B/wine WINEDEBUG=-all WINEDLLOVERRIDES=winedbg.exe=d
mkdir -p "$WINEPREFIX"

make windows WINDOWS_GOALS="$B/lace.exe $(in_folder $B/tests .exe $inside | tr '\n' ' ')"
make build/lace $(in_folder build/tests '' $outside)
file -b $B/lace.exe
ls -l $B/lace.exe | awk '{print "lace.exe: " $5 " bytes"}'

# A program that runs the one of Windows. SIGTERM ends that at once, and wine says so: for tests of the server it
# has stopped.
cat >$B/lace-here <<END
#!/bin/sh
[ "\$1" = serve ] || exec '$wine' '$top/$B/lace.exe' "\$@"
exec 3<&0
'$wine' '$top/$B/lace.exe' "\$@" <&3 &
trap 'kill \$!; wait \$!; exit 0' TERM INT
exec 2>/dev/null # the shell's own words
wait \$!
END
chmod +x $B/lace-here
$B/lace-here --version

echo "== run: the text must be that of Linux"
for name in here there; do
    program=$B/lace-here
    [ $name = here ] || program=build/lace
    $program run -p "Once upon a time" -n 43 --seed 8 2>$B/run-$name.err >$B/run-$name.txt
done
cat $B/run-here.txt
cmp $B/run-here.txt $B/run-there.txt && echo "the same text"

echo "== paths: UTF-8, and \\ between their parts"
mkdir -p "$B/Modèle 模型"
cp models/tales-4m.gguf "$B/Modèle 模型/für.gguf"
$B/lace-here run "$(echo "$B/Modèle 模型/für.gguf" | tr / '\\')" -p "Die schöne" -n 8 --seed 1 2>/dev/null
$B/lace-here inspect "$B/Modèle 模型/für.gguf" | head -3

echo "== serve"
$B/lace-here serve models/tales-4m.gguf --port 18082 >$B/serve.log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 200); do curl -sf http://127.0.0.1:18082/health >/dev/null && break; sleep 0.3; done
curl -s -H 'Content-Type: application/json' http://127.0.0.1:18082/v1/completions \
    -d '{"prompt": "The king", "max_tokens": 8, "temperature": 0}' | cut -c 1-200
echo
curl -s -o /dev/null -w 'page: %{http_code}, %{size_download} bytes\n' http://127.0.0.1:18082/
kill $server
wait $server || true

echo "== what cannot be had is refused in one line"
$B/lace-here serve --models tests/data/one_model.toml || true
$B/lace-here serve --unix /tmp/lace.socket models/tales-4m.gguf || true
$B/lace-here pull someone/model || true

echo "== tests"
for test in $inside; do
    name=$B/$(basename "$test").sh
    printf '#!/bin/sh\nexec %s %s/tests/%s.exe\n' "$wine" "$B" "$test" >"$name"
    chmod +x "$name"
done
LACE_SHARED=none LACE_BIN=$B/lace-here scripts/run-tests.pl $(for test in $inside; do echo "$B/$(basename "$test").sh"; done) \
    $(in_folder build/tests '' $outside)
