#!/usr/bin/env python3
"""Checks and times models that lie on a card and the CPU together, with nothing installed but Python.

    bench/hybrid-check.py check LACE [--golden DIR] [--synth SYNTH --vocab VOCAB] [--device cuda]
    bench/hybrid-check.py time LACE --synth SYNTH --vocab VOCAB [--models DIR] [--against LLAMA_BENCH]
                          [--shapes LIST] [--shares LIST] [--device cuda]

LACE is the program, --golden a folder of folders with a model.gguf each, SYNTH a synth_gguf.py and VOCAB a small
GGUF file whose vocabulary its models get.

check: logits of every model, with some layers on the card, with all layers but not the output, with experts in
RAM, token by token, in fours and in batches, against those of the CPU with exact (f32) activations; and token by
token twice, which must give the same bits.

time: models of real shapes with a card of which only a share of the model's bytes may be used: what `lace place`
predicts, what is measured, and what llama-bench measures with the same layers and experts on the card.
"""
import argparse, array, concurrent.futures, csv, json, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ENCODERS = ["bert", "nomic_bert", "modernbert", "xlm_roberta", "xlm_roberta-rerank"]
# Shape, type, cache: experts, sinks and windows, recurrent states, norms behind matrices.
MADE = [("micro", "q4_k_m", "f16"), ("micro", "q8_0", "q8_0"), ("micro", "f16", "f16"), ("micro-qwen3moe", "q4_k_m", "f16"),
        ("micro-qwen3moe", "f16", "f32"), ("micro-gpt-oss", "mxfp4", "f16"), ("micro-gemma2", "q4_k_m", "f16"),
        ("micro-qwen3.5", "q4_0", "f16"), ("micro-qwen3.5-moe", "q4_k", "f16"), ("micro-olmo2", "q4_k_m", "f16")]
FLOATS = ("f32", "f16", "bf16")
WORKERS = 12


def run(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


def synth(o, shape, kind, out, *more):
    own = ["synth_more.py"] if shape.startswith("micro-") else []
    done = run(sys.executable, *(os.path.join(HERE, w) for w in own), o.synth, "--shape", shape, "--type", kind,
               "--vocab", o.vocab, "--out", out, *more)
    if done.returncode:
        print(done.stderr[-400:])
    return done.returncode == 0


def say(good, what):
    print("%s %s" % ("ok    " if good else "NOT OK", what), flush=True)
    return 0 if good else 1


def logits(o, model, tokens, out, *more):
    """The logits, or what went wrong."""
    done = run(o.lace, "logits", model, "--tokens", tokens, "-o", out, "--force", "-t", 2, *more)
    if done.returncode:
        return "code %d: %s" % (done.returncode, done.stderr.strip()[-300:])
    values = array.array("f")
    values.frombytes(open(out, "rb").read())
    os.unlink(out)
    return values


def nmse(got, want, n_rows, ties):
    """Over all rows but those (up to `ties`) in which another expert was chosen at a near tie, and their number."""
    n = len(want) // n_rows
    rows = [(sum((a - b) ** 2 for a, b in zip(got[i:i + n:7], want[i:i + n:7])), sum(b * b for b in want[i:i + n:7]))
            for i in range(0, len(want), n)]
    kept = [r for r in rows if r[0] <= 1e-3 * r[1]]
    kept = kept if len(rows) - len(kept) <= ties else rows
    return sum(r[0] for r in kept) / sum(r[1] for r in kept), len(rows) - len(kept)


def ways_of(o, about):
    n = about["n_layers"]
    ways = [["--gpu-layers", max(1, n // 2)], ["--gpu-layers", n]]
    if about.get("n_experts"):
        ways += [["--cpu-moe"]] + ([["--n-cpu-moe", n // 2]] if n > 1 else [])
    return ways


def check_model(o, where, name, model, kv, limit, ties):
    """Lines of one model: one for each way to lie."""
    about = json.loads(run(o.lace, "inspect", model, "-o", "json").stdout)["model"]
    n = min(70, about["n_context"])
    tokens = os.path.join(where, name + ".tokens")
    open(tokens, "wb").write(array.array("i", [(1 + 37 * i) % about["n_vocab"] for i in range(n)]).tobytes())
    out = os.path.join(where, name + ".logits")
    # One by one: the CPU attends to batches in fixed point.
    want = logits(o, model, tokens, out, "--exact", "-b", 1, "--device", "cpu", "--kv-type", kv)
    if isinstance(want, str):
        return [(False, "%s on the CPU: %s" % (name, want))]
    lines = []
    for way in ways_of(o, about):
        title = "%-26s cache %-4s %-20s" % (name, kv, " ".join(map(str, way)))
        found = [logits(o, model, tokens, out, "--exact", "-b", b, "--device", o.device + stream, *way, "--kv-type", kv)
                 for b, stream in ((1, ""), (4, ";stream=0"), (40, ";stream=0"), (40, ";stream=8"))]
        again = found[0] if lines else logits(o, model, tokens, out, "--exact", "-b", 1, "--device", o.device, *way,
                                              "--kv-type", kv)  # the first way alone: it takes time
        found.insert(1, again)
        wrong = [f for f in found if isinstance(f, str)]
        if wrong:
            lines.append((False, "%s %s" % (title, wrong[0])))
            continue
        errors = [nmse(f, want, n, ties) for f in found[1:]]
        same = found[0].tobytes() == found[1].tobytes()
        good = same and all(e[0] <= limit for e in errors)
        apart = [e[1] for e in errors]
        lines.append((good, "%s one by one %.1e, in fours %.1e, in forties %.1e, with weights streamed %.1e, %s%s" % (
            title, *(e[0] for e in errors), "the same bits twice" if same else "OTHER BITS the second time",
            ", other experts at ties: %d %d %d %d of %d" % (*apart, n) if any(apart) else "")))
    return lines


def check_made(o, where, shape, kind, kv):
    model = os.path.join(where, "%s-%s-%s.gguf" % (shape, kind, kv))
    if not synth(o, shape, kind, model):
        return [(False, "%s %s cannot be made" % (shape, kind))]
    limit = 1e-4 if kv == "q8_0" else 1e-6 if kind in FLOATS else 1e-5
    lines = check_model(o, where, os.path.basename(model)[:-5], model, kv, limit, 5)
    os.unlink(model)
    return lines


def check(o):
    jobs, failures = [], 0
    with tempfile.TemporaryDirectory() as where, concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for name in sorted(os.listdir(o.golden)) if o.golden else []:
            model = os.path.join(o.golden, name, "model.gguf")
            if name not in ENCODERS and os.path.exists(model):
                jobs.append(pool.submit(check_model, o, where, name, model, "f16", 1e-6, 0))
        for shape, kind, kv in MADE if o.synth else []:
            jobs.append(pool.submit(check_made, o, where, shape, kind, kv))
        for job in jobs:
            for good, line in job.result():
                failures += say(good, line)
    print("%d failed" % failures)
    return failures


# ---- Times -------------------------------------------------------------------------------------------

LOADING = 384 << 20  # that lace keeps back of a card for loading


def predicted(o, model, room, where):
    """What lace place says: the chosen form, prompt and text tokens/s, and the placement."""
    placement = os.path.join(where, "place.json")
    done = run(o.lace, "place", model, "--device", o.device, "--gpu-memory", room, "-o", placement, "--force")
    if done.returncode:
        return None, done.stderr.strip()[-300:]
    line = next(l for l in done.stdout.splitlines() if l.startswith("*"))
    words = line[2:].split()
    print("\n".join("    " + l for l in done.stdout.splitlines() if l.strip()), flush=True)
    return {"form": line[2:34].strip(), "pp": float(words[-2]), "tg": float(words[-1]), "file": placement,
            "place": json.load(open(placement))}, None


def measured(o, model, *more):
    """Tokens/s by test, or what went wrong."""
    done = run(o.lace, "bench", model, "-p", "512,2048", "-n", 64, "-r", 2, "--no-limits", "-o", "csv", *more)
    if done.returncode:
        return done.stderr.strip()[-300:]
    return {r["test"]: float(r["tokens_per_second"]) for r in csv.DictReader(done.stdout.splitlines())}


def measured_by_llama(o, model, place):
    """The same by llama-bench, with as many layers and experts on the card."""
    layers, experts = place["layers"], place["experts"]
    n_layers = sum(1 for l in layers if l) + (1 if place["output"] else 0)
    n_experts = sum(1 for l, e in zip(layers, experts) if l and not e)
    words = ["-m", model, "-ngl", n_layers, "-p", "512,2048", "-n", 64, "-r", 2, "-o", "json", "-t", os.cpu_count()]
    done = run(o.against, *words, *(["-ncmoe", n_experts] if n_experts else []))
    if done.returncode:
        return done.stderr.strip()[-300:]
    found = json.loads(done.stdout)
    return {"pp%d" % t["n_prompt"] if t["n_prompt"] else "tg%d" % t["n_gen"]: t["avg_ts"] for t in found}


def one_device(o, model, where, *more):
    """NMSE of logits of the model spread like that against those of the card alone, and rows left out at ties."""
    tokens, out, n = os.path.join(where, "tokens"), os.path.join(where, "logits"), 24
    open(tokens, "wb").write(array.array("i", [1 + 37 * i for i in range(n)]).tobytes())
    one, many = (logits(o, model, tokens, out, "-b", 1, "--exact", "-t", os.cpu_count(), "--kv-type", "f16", *w)
                 for w in (["--device", o.device], more))
    if isinstance(one, str) or isinstance(many, str):
        return "logits: %s" % (one if isinstance(one, str) else many)
    return "logits against the card alone: nmse %.1e, %d rows at ties left out" % nmse(many, one, n, 4)


def time_model(o, shape, kind, where):
    model = os.path.join(o.models, "%s-%s.gguf" % (shape, kind))
    own = [os.path.join(HERE, "synth_more.py")] if shape != "phi4-14b" else []
    if not os.path.exists(model):
        made = run(sys.executable, *own, o.synth, "--shape", shape, "--type", kind, "--vocab", o.vocab, "--out", model)
        if made.returncode:
            return say(False, "%s cannot be made: %s" % (shape, made.stderr[-300:]))
    size = os.path.getsize(model)
    for share in map(int, o.shares.split(",")):
        room = size * share // 100 + LOADING
        print("%s %s, %d %% of %.1f GB on the card" % (shape, kind, share, size / 1e9), flush=True)
        plan, wrong = predicted(o, model, room, where)
        if wrong:
            say(False, "lace place: " + wrong)
            continue
        found = measured(o, model, "--place", plan["file"])
        if isinstance(found, str):
            say(False, "lace bench: " + found)
            continue
        other = measured_by_llama(o, model, plan["place"]) if o.against else {}
        if isinstance(other, str):
            print("    llama-bench: " + other)
            other = {}
        for test, speed in found.items():
            said = plan["tg"] if test.startswith("tg") else plan["pp"]
            print("    %-8s %8.1f tok/s, predicted %8.1f: %.2f%s" % (test, speed, said, speed / said, ", llama.cpp %.1f: %.2fx" % (
                other[test], speed / other[test]) if test in other else ""), flush=True)
        if share == 50:
            print("    " + one_device(o, model, where, "--place", plan["file"]), flush=True)
    return 0


def time_all(o):
    with tempfile.TemporaryDirectory() as where:
        for shape in o.shapes.split(","):
            time_model(o, *shape.split(":"), where)
    return 0


def main():
    a = argparse.ArgumentParser()
    a.add_argument("stage", choices=["check", "time"])
    a.add_argument("lace")
    a.add_argument("--golden")
    a.add_argument("--synth")
    a.add_argument("--vocab")
    a.add_argument("--device", default="cuda")
    a.add_argument("--models", default="/tmp")
    a.add_argument("--against")
    a.add_argument("--shapes", default="qwen3-30b-a3b:q4_k_m,phi4-14b:q4_k_m")
    a.add_argument("--shares", default="25,50,75")
    o = a.parse_args()
    sys.exit(1 if (check if o.stage == "check" else time_all)(o) else 0)


if __name__ == "__main__":
    main()
