#!/usr/bin/env python3
"""Checks and benchmarks of lace on an NVIDIA GPU, with nothing installed but Python.

    bench/gpu-check.py LACE SYNTH VOCAB [--models DIR] [--csv FILE] [--quick]

LACE is the program, SYNTH a synth_gguf.py that writes models of real shapes with random weights,
VOCAB a small GGUF file whose vocabulary those models get. For every type of weights a small model's
logits on the GPU are compared with those of the CPU with exact (f32) activations: token by token,
which takes the fused kernels, and in one batch. The same twice must give the same bits. Then models
of real size are timed, one line of CSV for each.
"""
import array, os, subprocess, sys, tempfile, threading

TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k",
         "q6_k", "q4_k_m", "iq4_nl", "iq4_xs", "mxfp4"]
LIMITS = {"f32": 1e-6, "f16": 1e-6, "bf16": 1e-6}  # of the normed mean square error; others 1e-5
MODELS = [("smollm2-135m", "f16"), ("tinyllama-1.1b", "q4_0"), ("llama3-8b", "q4_k_m"),
          ("llama3-8b", "q8_0"), ("phi4-14b", "q4_k_m"), ("codestral-22b", "q4_k_m")]


def run(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


def synth(tool, vocab, shape, kind, out, *more):
    done = run(sys.executable, tool, "--shape", shape, "--type", kind, "--vocab", vocab, "--out", out,
               *more)
    if done.returncode:
        print(done.stderr[-400:])
    return done.returncode == 0


def logits(lace, model, tokens, out, *more):
    done = run(lace, "logits", model, "--tokens", tokens, "-o", out, "--kv-type", "f16", *more)
    if done.returncode:
        print("  ", done.stderr.strip()[-400:])
        return None
    values = array.array("f")
    values.frombytes(open(out, "rb").read())
    return values


def nmse(got, want):
    if got is None or len(got) != len(want):
        return float("inf")
    error = sum((a - b) ** 2 for a, b in zip(got, want))
    return error / sum(b * b for b in want)


def check_types(lace, tool, vocab, where):
    tokens, failures = os.path.join(where, "tokens"), 0
    open(tokens, "wb").write(array.array("i", [1 + 37 * i % 31000 for i in range(70)]).tobytes())
    out = os.path.join(where, "logits")
    for kind in TYPES:
        model = os.path.join(where, "micro-%s.gguf" % kind)
        if not synth(tool, vocab, "micro", kind, model):
            failures += 1
            continue
        want = logits(lace, model, tokens, out, "--exact", "--device", "cpu")
        one = logits(lace, model, tokens, out, "-b", 1, "--device", "cuda")
        again = logits(lace, model, tokens, out, "-b", 1, "--device", "cuda")
        many = logits(lace, model, tokens, out, "-b", 64, "--device", "cuda")
        errors, limit = (nmse(one, want), nmse(many, want)), LIMITS.get(kind, 1e-5)
        same = one is not None and again is not None and one.tobytes() == again.tobytes()
        good = max(errors) <= limit and same
        failures += not good
        print("%s %-8s token by token %.1e, in a batch %.1e, %s" % (
            "ok    " if good else "NOT OK", kind, errors[0], errors[1],
            "the same bits twice" if same else "OTHER BITS the second time"), flush=True)
        os.unlink(model)
    return failures


def bench(lace, path, rows, *more):
    done = run(lace, "bench", path, "--device", "cuda", "-o", "csv", "--no-limits", *more)
    print(done.stdout + done.stderr[-600:], flush=True)
    rows.append(done.stdout)


def main():
    lace, tool, vocab = sys.argv[1:4]
    words = sys.argv[4:]
    where = words[words.index("--models") + 1] if "--models" in words else tempfile.mkdtemp()
    models = MODELS[:3] if "--quick" in words else MODELS
    os.makedirs(where, exist_ok=True)
    paths = {m: os.path.join(where, "%s-%s.gguf" % m) for m in models}
    makers = [threading.Thread(target=synth, args=(tool, vocab, m[0], m[1], paths[m])) for m in models]
    for t in makers:
        t.start()
    failures = check_types(lace, tool, vocab, where)
    rows = []
    for t, m in zip(makers, models):
        t.join()
        more = ["-p", "512", "-n", "128", "-d", "0,512" if m[0] != "llama3-8b" else "0,512,8000"]
        bench(lace, paths[m], rows, "-r", "3", *more)
    if "--csv" in words:
        open(words[words.index("--csv") + 1], "w").writelines(rows)
    print("%d of %d types wrong" % (failures, len(TYPES)))
    return failures > 0


sys.exit(main())
