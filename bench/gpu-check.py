#!/usr/bin/env python3
"""Checks and benchmarks of lace on an NVIDIA GPU, with nothing installed but Python.

    bench/gpu-check.py LACE SYNTH VOCAB [--models DIR] [--csv FILE] [--quick] [--no-bench]
                       [--golden DIR] [--tales FILE] [--sanitizer PROGRAM]

LACE is the program, SYNTH a synth_gguf.py that writes models of real shapes with random weights,
VOCAB a small GGUF file whose vocabulary those models get. For every type of weights a small model's
logits on the GPU are compared with those of the CPU with exact (f32) activations: token by token,
which takes the fused kernels, and in one batch. The same twice must give the same bits. The same is
done with --golden (a folder of folders with a model.gguf each, one for every architecture) and every
type of KV cache. With --tales, a model that writes text: greedy and drawn texts on the GPU must be
those of the CPU, stopped where they should be, and those of the server, asked for many at once.
compute-sanitizer looks at a model of the golden ones. Then models of real size are timed, one line of
CSV for each.
"""
import array, http.client, json, os, signal, socket, subprocess, sys, tempfile, threading, time

TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k",
         "q6_k", "q4_k_m", "iq4_nl", "iq4_xs", "mxfp4"]
OWN_TYPES = ["s3", "s4", "s8"]
LIMITS = {"f32": 1e-6, "f16": 1e-6, "bf16": 1e-6}  # of the normed mean square error; others 1e-5
MODELS = [("smollm2-135m", "f16"), ("tinyllama-1.1b", "q4_0"), ("llama3-8b", "q4_k_m"),
          ("llama3-8b", "q8_0"), ("phi4-14b", "q4_k_m"), ("codestral-22b", "q4_k_m"),
          ("llama3-8b", "s4"), ("llama3-8b", "s3"), ("qwen3-8b", "q4_k_m"), ("qwen3-30b-a3b", "q4_k_m")]


def run(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


def synth(tool, vocab, shape, kind, out, *more):
    own = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "synth_own.py")]
    done = run(sys.executable, *(own if kind in OWN_TYPES else []), tool, "--shape", shape, "--type",
               kind, "--vocab", vocab, "--out", out, *more)
    if done.returncode:
        print(done.stderr[-400:])
    return done.returncode == 0


def logits(lace, model, tokens, out, *more, kv="f16"):
    done = run(lace, "logits", model, "--tokens", tokens, "-o", out, "--kv-type", kv, *more)
    if done.returncode:
        print("  ", done.stderr.strip()[-400:])
        return None
    values = array.array("f")
    values.frombytes(open(out, "rb").read())
    return values


def nmse(got, want):
    if got is None or want is None or len(got) != len(want):
        return float("inf")
    error = sum((a - b) ** 2 for a, b in zip(got, want))
    return error / sum(b * b for b in want)


def check_types(lace, tool, vocab, where):
    tokens, failures = os.path.join(where, "tokens"), 0
    open(tokens, "wb").write(array.array("i", [1 + 37 * i % 31000 for i in range(70)]).tobytes())
    out = os.path.join(where, "logits")
    for kind in TYPES + OWN_TYPES:
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


def check_golden(lace, folder, where):
    """Every architecture, every type of cache, token by token (fused or recorded) and in batches."""
    tokens, out, failures = os.path.join(where, "tokens"), os.path.join(where, "logits"), 0
    for name in sorted(os.listdir(folder)):
        model = os.path.join(folder, name, "model.gguf")
        if not os.path.exists(model):
            continue
        n_vocab = json.loads(run(lace, "inspect", model, "-o", "json").stdout)["model"]["n_vocab"]
        open(tokens, "wb").write(array.array("i", [(1 + 37 * i) % n_vocab for i in range(150)]).tobytes())
        for kv in ["f32", "f16", "q8_0"]:
            want = logits(lace, model, tokens, out, "--exact", "--device", "cpu", kv=kv)
            one = logits(lace, model, tokens, out, "-b", 1, "--device", "cuda", kv=kv)
            again = logits(lace, model, tokens, out, "-b", 1, "--device", "cuda", kv=kv)
            many = logits(lace, model, tokens, out, "-b", 64, "--device", "cuda", kv=kv)
            # Keys and values of 8 bits are rounded anew from numbers that differ in their last bits.
            errors, limit = (nmse(one, want), nmse(many, want)), 1e-4 if kv == "q8_0" else 1e-6
            same = one is not None and again is not None and one.tobytes() == again.tobytes()
            good = max(errors) <= limit and same
            failures += not good
            print("%s %-18s cache %-4s token by token %.1e, in a batch %.1e, %s" % (
                "ok    " if good else "NOT OK", name, kv, errors[0], errors[1],
                "the same bits twice" if same else "OTHER BITS the second time"), flush=True)
    return failures


def check_sparse(lace, tales, where):
    tokens, out, failures = os.path.join(where, "tokens"), os.path.join(where, "logits"), 0
    open(tokens, "wb").write(array.array("i", [1 + 7 * i for i in range(90)]).tobytes())
    for kind in ["m4", "m8", "n24", "csr"]:
        model = os.path.join(where, "tales-%s.gguf" % kind)
        share = ["--pattern", "2:4"] if kind == "n24" else ["--sparsity", 0.5]
        done = run(lace, "prune", tales, model, "--method", "magnitude", "--store", kind, "--accept-loss",
                   *share)
        if done.returncode:
            print(done.stderr[-300:])
        want = logits(lace, model, tokens, out, "--exact", "--device", "cpu")
        one = logits(lace, model, tokens, out, "-b", 1, "--device", "cuda")
        many = logits(lace, model, tokens, out, "-b", 64, "--device", "cuda")
        errors = (nmse(one, want), nmse(many, want))
        failures += say(max(errors) <= 1e-5, "%-8s token by token %.1e, in a batch %.1e" % (kind, *errors))
    return failures


PROMPTS = ["Once upon a time", "The little dog", "Lily was sad because", "One day, a big bear",
           "Tom and Sue", "In the garden", "The old king said", "A red ball"]


def text_of(lace, model, prompt, device, *more):
    done = run(lace, "run", model, "-p", prompt, "--device", device, "--no-display-prompt", *more)
    return done.stdout if done.returncode == 0 else "FAILED: " + done.stderr.strip()[-300:]


def say(good, what):
    print("%s %s" % ("ok    " if good else "NOT OK", what), flush=True)
    return 0 if good else 1


def check_texts(lace, model):
    rules = {"greedy": ["--temp", 0], "default": ["--seed", 7],
             "top-k alone": ["--seed", 8, "--top-p", 1, "--min-p", 0, "--temp", 1],
             "top-p alone": ["--seed", 9, "--top-k", 0, "--min-p", 0, "--top-p", 0.8],
             "no cut": ["--seed", 10, "--top-k", 0, "--min-p", 0, "--top-p", 1],
             "min-p alone": ["--seed", 11, "--top-k", 0, "--min-p", 0.1, "--top-p", 1],
             "penalties (host)": ["--seed", 12, "--repeat-penalty", 1.3],
             "mirostat (host)": ["--seed", 13, "--mirostat", 2],
             "no end (host)": ["--seed", 14, "--ignore-eos"]}
    failures = 0
    for name, words in rules.items():
        same, again = 0, 0
        for prompt in PROMPTS:
            want = text_of(lace, model, prompt, "cpu", "-n", 100, *words)
            got = text_of(lace, model, prompt, "cuda", "-n", 100, *words)
            again += got == text_of(lace, model, prompt, "cuda", "-n", 100, *words)
            same += got == want
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), -1)
                print("   %s: %r differs at %d: %r" % (name, prompt, at, got[max(0, at):][:60]))
        # A draw may fall on the border between two tokens, as logits differ in their last bits.
        failures += say(again == len(PROMPTS) and same >= len(PROMPTS) - (name != "greedy"),
                        "%-16s %d of %d texts as on the CPU, %d the same twice" % (
                            name, same, len(PROMPTS), again))
    for n in (0, 1, 2, 17, 300):
        got, want = (text_of(lace, model, PROMPTS[0], d, "-n", n, "--temp", 0) for d in ("cuda", "cpu"))
        failures += say(got == want, "a text of %d tokens ends where it should" % n)
    talks = [run(lace, "chat", model, "--device", d, "--seed", 5, "-n", 60,
                 input="Once upon a time\nThen\n").stdout for d in ("cpu", "cuda", "cuda")]
    failures += say(talks[1] == talks[2] and len(talks[1]) > 20, "a conversation is the same twice")
    return failures


def check_server(lace, model):
    """Many at once, mixed with prompts: greedy texts must be those of single runs."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    server = subprocess.Popen([lace, "serve", model, "--device", "cuda", "--port", str(port)],
                              stderr=subprocess.DEVNULL)
    answers, failures = {}, 0

    def ask(number, fields):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        c.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
        answers[number] = json.loads(c.getresponse().read()).get("choices", [{}])[0].get("text")

    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        jobs = []
        for i in range(3 * len(PROMPTS)):
            fields = {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 60, "temperature": 0}
            if i >= len(PROMPTS):
                fields.update({"temperature": 0.9, "seed": 3 + i % len(PROMPTS), "top_p": 0.9})
            jobs.append(threading.Thread(target=ask, args=(i, fields)))
            jobs[-1].start()
            time.sleep(0.01)
        for j in jobs:
            j.join()
        n = len(PROMPTS)
        want = [text_of(lace, model, p, "cuda", "-n", 60, "--temp", 0).rstrip("\n") for p in PROMPTS]
        same = sum((answers[i] or "").rstrip("\n") == want[i] for i in range(n))
        failures += say(same >= n - 1, "%d of %d greedy texts of the server as alone" % (same, n))
        pairs = sum(answers[n + i] == answers[2 * n + i] and bool(answers[n + i]) for i in range(n))
        failures += say(pairs >= n - 1, "%d of %d drawn texts the same for the same seed" % (pairs, n))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    return failures


def check_memory(lace, sanitizer, model, where):
    tokens, failures = os.path.join(where, "tokens"), 0
    open(tokens, "wb").write(array.array("i", [1 + i for i in range(40)]).tobytes())
    for tool in ("memcheck", "racecheck"):
        for kv, size in (("f16", 1), ("f16", 40), ("q8_0", 1)):
            done = run(sanitizer, "--tool", tool, "--error-exitcode", 9, lace, "logits", model, "--tokens",
                       tokens, "-o", os.path.join(where, "logits"), "-b", size, "--kv-type", kv,
                       "--device", "cuda")
            lines = done.stdout.strip().split("\n") + done.stderr.strip().split("\n")
            failures += say(done.returncode == 0, "%s, cache %s, batches of %d: %s" % (
                tool, kv, size, next((w for w in lines if "SUMMARY" in w), lines[-1])))
    return failures


def bench(lace, path, rows, *more):
    done = run(lace, "bench", path, "--device", "cuda", "-o", "csv", "--no-limits", *more)
    print(done.stdout + done.stderr[-600:], flush=True)
    rows.append(done.stdout)


def option(words, name):
    return words[words.index(name) + 1] if name in words else None


def main():
    lace, tool, vocab = sys.argv[1:4]
    words = sys.argv[4:]
    where = option(words, "--models") or tempfile.mkdtemp()
    models = [] if "--no-bench" in words else MODELS[:3] if "--quick" in words else MODELS
    os.makedirs(where, exist_ok=True)
    paths = {m: os.path.join(where, "%s-%s.gguf" % m) for m in models}
    makers = [threading.Thread(target=synth, args=(tool, vocab, m[0], m[1], paths[m])) for m in models]
    for t in makers:
        t.start()
    failures = check_types(lace, tool, vocab, where)
    golden, tales, sanitizer = (option(words, "--" + n) for n in ("golden", "tales", "sanitizer"))
    if golden:
        failures += check_golden(lace, golden, where)
    if tales:
        failures += check_sparse(lace, tales, where) + check_texts(lace, tales) + check_server(lace, tales)
    if golden and sanitizer:
        failures += check_memory(lace, sanitizer, os.path.join(golden, "llama", "model.gguf"), where)
    rows = []
    for t, m in zip(makers, models):
        t.join()
        more = ["-p", "512", "-n", "128", "-d", "0,512" if m[0] != "llama3-8b" else "0,512,8000"]
        bench(lace, paths[m], rows, "-r", "3", *more)
    if "--csv" in words:
        open(option(words, "--csv"), "w").writelines(rows)
    print("%d checks failed" % failures)
    return failures > 0


sys.exit(main())
