#!/bin/sh
# Check who includes whom in src/ against section 4 of ARCHITECTURE.md.
#
# Prints file:line and the rule for every include that breaks it, and fails. The table below is that
# section, written for awk: a folder and the folders it may include; its own and lace.h always.
set -eu
cd "$(dirname "$0")/.."

find src -name '*.[chS]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
BEGIN {
    all = "base image rank place tensor tokenizer grammar sampler formats vocab hf ops state plan backend model runner jinja chat"
    may["base"] = ""
    may["rank"] = may["place"] = "base"
    may["tensor"] = may["tokenizer"] = may["grammar"] = may["jinja"] = "base"
    may["sampler"] = may["image"] = "base"
    may["formats"] = "base tensor"
    may["vocab"] = "base formats tokenizer"
    may["hf"] = "base tensor formats model"
    may["ops"] = "base tensor"
    may["plan"] = "base rank tensor ops"
    may["backend"] = "base rank tensor ops plan state"
    may["state"] = "base tensor ops backend"
    may["model"] = "base rank place tensor ops plan state backend formats hf"
    may["runner"] = "base rank place tensor ops plan state backend model formats"
    may["chat"] = "base jinja tokenizer"
    may["compress"] = may["engine"] = all
    may["server"] = "base chat"
    may["hub"] = "base formats"
    may["cli"] = "base"
    # Verbs that do more than call the library.
    tools = "base tensor formats model compress"
    file_may["inspect"] = file_may["convert"] = file_may["quantize"] = tools
    file_may["imatrix"] = file_may["compare"] = file_may["measure_bar"] = tools
    file_may["surgery_run"] = file_may["as_gguf"] = file_may["fit_chart"] = tools
    file_may["lora"] = file_may["prune"] = file_may["sparsify"] = file_may["fit"] = file_may["perplexity"] = tools
    file_may["output"] = file_may["rm"] = "base formats"
    file_may["cli"] = "base engine"
    file_may["place"] = "base engine place"
    file_may["pull"] = "base formats hub"
    file_may["chat_answer"] = "base chat"
    file_may["serve"] = "base server"
    file_may["serve_models"] = "base server"
    file_may["models_file"] = "base formats"
    file_may["bench_limits"] = "base backend"
}
function complain(text) {
    print FILENAME ":" FNR ": " text
    n_bad++
}
# What only Linux or Windows has stands behind base/.
/^[ \t]*#[ \t]*include[ \t]*<(windows\.h|winsock2\.h|linux\/|sys\/(eventfd|epoll|random|syscall|prctl|sendfile|inotify|signalfd|timerfd|mman)|malloc)/ {
    if (FILENAME !~ /^src\/base\//)
        complain($0 ": only base/ asks the system")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    n++
    split(FILENAME, path, "/")
    layer = path[2]
    split($0, part, "\"")
    name = part[2]
    if (name == "lace.h")
        next
    if (!match(name, "/")) {
        complain("\"" name "\" names no layer: includes are written from src/")
        next
    }
    target = substr(name, 1, index(name, "/") - 1)
    if (layer != "backend" && name ~ /^backend\/[^\/]*\//)
        complain("\"" name "\" names a kind of device: only backend/ does")
    if (target == layer)
        next
    if (!(layer in may)) {
        complain("src/" layer " has no row in the table of layers")
        next
    }
    allowed = may[layer]
    base = path[length(path)]
    sub(/\..*/, "", base)
    if (layer == "cli" && base in file_may)
        allowed = file_may[base]
    if (index(" " allowed " ", " " target " ") == 0)
        complain(layer " may not include \"" name "\" (allowed: lace.h " allowed ")")
}
END {
    if (n_bad)
        exit 1
    print "layers: " n + 0 " includes follow the table"
}'
