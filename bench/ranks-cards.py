#!/usr/bin/env python3
"""Rows over several cards: logits against one card, the same text, tokens/s; by each way of exchanging.

    bench/ranks-cards.py build/lace cuda:0,cuda:0                 two ranks on one card
    bench/ranks-cards.py build/lace cuda:0,cuda:1 --links nccl,pinned,host
    bench/ranks-cards.py build/lace ref:1,ref:1 --links host --most 0

--stub FILE: a library in the place of NCCL's, for "stub" among the links. Ends with 1 if something differs.
"""
import argparse, array, os, subprocess, sys, tempfile, time

ap = argparse.ArgumentParser()
ap.add_argument("lace")
ap.add_argument("devices")
ap.add_argument("--one", help="the device to compare with (default: the first)")
ap.add_argument("--links", default="pinned,host", help="of nccl, stub, pinned, host")
ap.add_argument("--stub", help="libnccl.so.2 of the tests")
ap.add_argument("--golden", default="build/data/golden", help="a folder of small models")
ap.add_argument("--models", default="models/tales-4m.gguf,models/default.gguf")
ap.add_argument("--large", default="", help="models for times alone")
ap.add_argument("--most", type=float, default=1e-9, help="NMSE of the logits")
ap.add_argument("--limit", type=float, default=110, help="seconds for all")
ap.add_argument("-n", type=int, default=48, help="tokens")
a = ap.parse_args()

begin = time.time()
work = tempfile.mkdtemp()
one = a.one or a.devices.split(",")[0]
n_failed = 0


def environment(link):
    env = dict(os.environ)
    if link:
        env["LACE_CARD_LINK"] = "nccl" if link == "stub" else link
    if link == "stub":
        folder = os.path.join(work, "stub")
        os.makedirs(folder, exist_ok=True)
        to = os.path.join(folder, "libnccl.so.2")
        if not os.path.exists(to):
            os.symlink(os.path.abspath(a.stub), to)
        env["LD_LIBRARY_PATH"] = folder + ":" + env.get("LD_LIBRARY_PATH", "")
    return env


def run(arguments, link, seconds=60):
    """(exit code, standard output, the last lines of errors)"""
    try:
        p = subprocess.run([a.lace] + arguments, env=environment(link), timeout=seconds,
                           stdin=subprocess.DEVNULL, capture_output=True)
        return p.returncode, p.stdout, p.stderr.decode(errors="replace").strip().split("\n")
    except subprocess.TimeoutExpired:
        return -1, b"", ["it took more than %d s" % seconds]


def logits(model, where, batch, link):
    ids = os.path.join(work, "ids")
    out = os.path.join(work, "out")
    with open(ids, "wb") as f:
        array.array("i", (i * 37 % 90 + 5 for i in range(a.n))).tofile(f)
    code, _, err = run(["logits", model, "--tokens", ids, "-o", out, "-y", "-b", str(batch)] + where, link)
    if code != 0:
        return None, "code %d: %s" % (code, err[-1])
    x = array.array("f")
    with open(out, "rb") as f:
        x.frombytes(f.read())
    return x, ""


def nmse(x, y):
    if x == y:
        return 0.0
    return sum((p - q) ** 2 for p, q in zip(x, y)) / max(sum(q * q for q in y), 1e-30)


def rows(more=()):
    return ["--device", a.devices, "--split-mode", "row", *more]


def check(model, link, batches, more=()):
    global n_failed
    for batch in batches:
        if time.time() - begin > a.limit:
            return print("  %-24s left out: no time" % os.path.basename(model))
        whole, why = logits(model, ["--device", one], batch, None)
        if whole is None:
            return print("  %-24s %s alone: %s" % (name_of(model), one, why))
        cut, why = logits(model, rows(more), batch, link)
        found = nmse(cut, whole) if cut is not None and len(cut) == len(whole) else float("inf")
        is_right = found <= a.most
        n_failed += not is_right
        print("  %-24s %-6s %-6s batch %-3d nmse %-9.2g %s %s" %
              (name_of(model), link, " ".join(more[1:]), batch, found, "ok" if is_right else "WRONG", why), flush=True)


def name_of(path):
    return os.path.basename(os.path.dirname(path)) if path.endswith("/model.gguf") else os.path.basename(path)


def text_and_speed(model, link, more=()):
    global n_failed
    arguments = ["run", model, "-p", "Once upon a time", "-n", "128", "--temp", "0", "--raw"]
    results = []
    for where, by in ((["--device", one], None), (rows(more), link)):
        code, out, err = run(arguments + where, by)
        results.append((code, out))
        print("  %-24s %-6s %s" % (name_of(model), by or one, " / ".join(err[-2:]).replace("lace: ", "")), flush=True)
    same = results[0] == results[1] and results[0][0] == 0
    n_failed += not same
    print("  %-24s %-6s text %s" % (name_of(model), link, "the same" if same else "DIFFERS"), flush=True)


links = a.links.split(",")
models = [m for m in a.models.split(",") if os.path.exists(m)]
golden = sorted(os.path.join(a.golden, d, "model.gguf") for d in (os.listdir(a.golden) if os.path.isdir(a.golden) else []))
golden = [g for g in golden if os.path.exists(g)]
for link in links:
    print(link)
    for m in models:
        check(m, link, (1, 5, 64))
    for m in models[:1]:
        check(m, link, (1, 64), ("--tensor-split", ",".join(["3"] + ["1"] * (a.devices.count(",")))))
    for m in models:
        text_and_speed(m, link)
print("golden models")
for m in golden:
    check(m, links[0], (1, 40))
print("times")
for m in [m for m in a.large.split(",") if m]:
    for link in links:
        text_and_speed(m, link)
print("%d differ; %.0f s" % (n_failed, time.time() - begin))
sys.exit(1 if n_failed else 0)
