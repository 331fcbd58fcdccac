#!/usr/bin/env bash
# All that a card is asked whether it is right, beside each other: programs wait for the processor most of
# the time, so one card serves them all. Nothing here is a time.
#
#   bench/card-checks.sh [SECONDS] [SYNTH]   in a checkout with build/lace, build/checkkernels, build/tests
#
# SECONDS: what all of it may take (default 400); a program that runs longer is ended, and what it had found
# counts. SYNTH: a synth_gguf.py, without which made models are left out. Golden models are those of
# build/data/golden, or of $LACE_SHARED/golden* where that is set. Logs: $OUT, or /tmp/card-checks.
set -u
limit=${1:-400} synth=${2:-} tales=models/tales-4m.gguf
logs=${OUT:-/tmp/card-checks}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$logs"
golden=build/data/golden
if [ -n "${LACE_SHARED:-}" ]; then # one folder of all of them
    golden=$work/golden
    mkdir "$golden"
    for d in "$LACE_SHARED"/golden/*/ "$LACE_SHARED"/golden2/*/; do ln -s "$(realpath "$d")" "$golden/$(basename "$d")"; done
fi

# job NAME COMMAND...: in the background; one line when it has ended.
job() {
    local name=$1
    shift
    (
        begin=$SECONDS
        timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1
        code=$?
        wrong=$(grep -c -i '^not ok\|WRONG\|NOT OK' "$logs/$name.log")
        note=""
        [ $code = 124 ] && note=", ended by the limit"
        [ $code != 0 ] && [ $code != 124 ] && note=", code $code"
        right=$(grep -v -i 'not ok' "$logs/$name.log" | grep -c '^ok\| ok ')
        echo "$name: $right ok, $wrong not ok, $((SECONDS - begin)) s$note"
    ) &
}

job bytes build/checkkernels --level gpu --op gpu_bytes
job token build/checkkernels --level gpu --op gpu_token
job kernels build/checkkernels --level gpu
job vulkan build/checkkernels --level vulkan --quick
for t in golden/test_golden golden/test_encoders golden/test_vision unit/test_lora unit/test_mtp unit/test_cuda \
    unit/test_overlap unit/test_batcher unit/test_guess unit/test_cuda_types; do
    job "$(basename $t)" env LACE_DEVICE=cuda build/tests/$t
done
for t in golden/test_vision unit/test_lora; do # a part of the model, which is a recorded graph there
    job "$(basename $t)-parts" env "LACE_DEVICE=cuda;layers=1" build/tests/$t
done
job vulkan-golden env LACE_DEVICE=vulkan build/tests/golden/test_golden
job mixed build/tests/golden/test_mixed --card cuda
job ranks python3 bench/ranks-cards.py build/lace cuda:0,cuda:0 --links pinned --golden "$golden" \
    --models $tales --limit "$((limit - 10))"
job streams python3 bench/streams.py build/lace $tales --device cuda
if [ -n "$synth" ]; then
    job gpu-check python3 bench/gpu-check.py build/lace "$synth" $tales --golden "$golden" --tales $tales --no-bench
    job hybrid-check python3 bench/hybrid-check.py check build/lace --golden "$golden" --synth "$synth" --vocab $tales
fi
sanitizer=$(command -v compute-sanitizer)
if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        job bytes-$tool "$sanitizer" --tool $tool build/checkkernels --level gpu --quick --op gpu_bytes --type q4_k,q6_k
        job token-$tool "$sanitizer" --tool $tool build/checkkernels --level gpu --quick --op gpu_token
    done
fi
wait
