#!/usr/bin/env python3
"""Streams that clients leave at random: nothing may be lost, and the server must be as before.

    bench/streams.py LACE MODEL [--device cuda] [--streams 1000] [--at-once 64] [--tokens 96]

Half of the clients leave after some tokens, some before the first, without a word. The others must get
all of their tokens and the end of the stream. Then nothing may be running, and all of the cache must be free or
hold known beginnings; a third round must leave as many bytes of the server's and of the
card's memory (nvidia-smi, where it is) as the second. Ends with 1 if something is wrong.
"""
import argparse, asyncio, json, random, re, subprocess, sys, time, urllib.request

ap = argparse.ArgumentParser()
ap.add_argument("lace")
ap.add_argument("model")
ap.add_argument("--device", default="auto")
ap.add_argument("--streams", type=int, default=1000)
ap.add_argument("--at-once", type=int, default=64)
ap.add_argument("--tokens", type=int, default=96)
ap.add_argument("--port", type=int, default=18377)
a = ap.parse_args()
WORDS = "the river ran past a small house where nobody had lived for many years and it was cold".split()


async def stream(n, rng, counts):
    stays, leaves_after = rng.random() < 0.5, rng.randrange(0, a.tokens)
    prompt = " ".join(rng.choices(WORDS, k=rng.randrange(2, 120)))
    body = json.dumps({"prompt": prompt, "max_tokens": a.tokens, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        events, ended = 0, False
        while stays or events < leaves_after:
            line = await asyncio.wait_for(reader.readline(), 120)
            if not line:
                break
            if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line:
                print("stream %d: %s" % (n, line.decode().strip()))
            if line.startswith(b"data: [DONE]"):
                ended = True
                break
            events += line.startswith(b"data: ")
        counts["left" if not stays else "whole" if ended and events >= a.tokens else "broken"] += 1
        if stays and not (ended and events >= a.tokens) and counts["broken"] <= 3:
            print("stream %d: %d events, %s" % (n, events, "an end" if ended else "no end"))
        writer.transport.abort()
    except (OSError, asyncio.TimeoutError) as e:
        counts["broken"] += 1
        print("stream %d: %s" % (n, e or type(e).__name__))


async def round_of(seed):
    rng, counts, gate = random.Random(seed), {"left": 0, "whole": 0, "broken": 0}, asyncio.Semaphore(a.at_once)

    async def one(n):
        async with gate:
            await stream(n, rng, counts)
    await asyncio.gather(*(one(n) for n in range(a.streams)))
    return counts


def metrics():
    text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % a.port, timeout=10).read().decode()
    return {m[0]: float(m[1]) for m in re.findall(r"^(lace_\w+) (\S+)$", text, re.M)}


def memory(pid):
    """MB of the server's own memory, and of the card's."""
    with open("/proc/%d/status" % pid) as f:
        own = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True).stdout.split()
    except OSError:
        found = []
    return own, float(found[0]) if found else 0.0


def main():
    server = subprocess.Popen([a.lace, "serve", a.model, "--device", a.device, "--port", str(a.port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wrong, after = 0, []
    try:
        for _ in range(200):
            try:
                metrics()
                break
            except OSError:
                time.sleep(0.1)
        for seed in (1, 2, 3):
            begin = time.time()
            counts = asyncio.run(round_of(seed))
            took = time.time() - begin
            for _ in range(100): # the last ones that left may still be noticed
                m = metrics()
                if m["lace_requests_running"] + m["lace_requests_waiting"] == 0:
                    break
                time.sleep(0.1)
            used, kept = m["lace_kv_tokens_used"], m["lace_kv_tokens_kept"]
            after.append(memory(server.pid))
            good = counts["broken"] == 0 and m["lace_requests_running"] + m["lace_requests_waiting"] == 0 and used == 0
            print("%d streams in %.1f s: %d whole, %d left, %d broken; running %d, waiting %d; tokens in the cache %d, of known "
                  "beginnings %d; %.0f MB, card %.0f MB%s" % (a.streams, took, counts["whole"], counts["left"], counts["broken"],
                                                            m["lace_requests_running"], m["lace_requests_waiting"], used, kept,
                                                            *after[-1], "" if good else "  WRONG"), flush=True)
            wrong += not good
        if after[2][0] > after[1][0] + 16 or after[2][1] > after[1][1] + 16: # the first round fills the cache
            print("memory has grown  WRONG")
            wrong += 1
        wrong += server.poll() is not None
    finally:
        server.terminate()
        code = server.wait()
    print("the server ended with %d" % code)
    return 1 if wrong or code else 0


sys.exit(main())
