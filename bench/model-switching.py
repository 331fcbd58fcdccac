#!/usr/bin/env python3
"""Several models behind one port, within a budget for fewer: does it hold?

Starts `lace serve --models` with three models and room for two, and sends 1,000 requests to models
at random from several clients. Meanwhile the memory of all processes is sampled. Then the process of
one model is killed (kill -9), again and again, while another one streams.

    bench/model-switching.py [--lace build/lace] [--requests 1000] [--kills 20] [MODEL.gguf]

Prints what was counted, and fails if a request failed, the memory went above the budget, a killed
model took longer than three loads, or a stream of another model was disturbed.
"""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

NAMES = ["a", "b", "c"]


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.load(answer)


def children(parent):
    """Processes of models: {pid: name}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) != parent:
                    continue
            with open(f"/proc/{entry}/cmdline") as f:
                words = f.read().split("\0")
            found[int(entry)] = words[words.index("--alias") + 1]
        except (OSError, ValueError, IndexError):
            continue
    return found


def own_bytes(pid):
    """Memory that a process does not share with a file."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return sum(int(line.split()[1]) * 1024 for line in f
                       if line.startswith(("RssAnon:", "RssShmem:")))
    except OSError:
        return 0


def complete(url, model, n=8):
    return post(url, "/v1/completions", {"model": model, "prompt": "Once upon a time",
                                         "max_tokens": n, "temperature": 0})


def random_requests(url, server, count, budget, n_clients):
    """Requests at random; returns failures, the most memory, and how long each took."""
    left, failures, times, most = [count], [], [], 0
    lock = threading.Lock()

    def client(seed):
        choose = random.Random(seed)
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            name, begin = choose.choice(NAMES), time.monotonic()
            try:
                answer = complete(url, name)
                if answer["model"] != name or not answer["choices"][0]["text"]:
                    raise ValueError(answer)
                times.append(time.monotonic() - begin)
            except Exception as error:  # counted, and shown at the end
                failures.append(f"{name}: {error}")

    threads = [threading.Thread(target=client, args=(i,)) for i in range(n_clients)]
    for thread in threads:
        thread.start()
    said = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, sum(own_bytes(pid) for pid in children(server.pid)))
        said = max(said, get(url, "/v1/models")["memory_bytes"])
        time.sleep(0.01)
    return failures, most, said, times


def stream_beside(url, model, stop, result):
    """Streams of a model until told to stop; counts those that were disturbed."""
    while not stop.is_set():
        body = {"model": model, "prompt": "Once", "max_tokens": 64, "stream": True,
                "ignore_eos": True}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
            result["good" if text.rstrip().endswith("data: [DONE]") else "bad"] += 1
        except (urllib.error.URLError, OSError):
            result["bad"] += 1


def kills(url, server, count):
    """Kill a model's process while another one streams; returns times to the next answer."""
    complete(url, "a")
    complete(url, "b")
    stop, beside, times, loads = threading.Event(), {"good": 0, "bad": 0}, [], []
    thread = threading.Thread(target=stream_beside, args=(url, "b", stop, beside))
    thread.start()
    for _ in range(count):
        post(url, "/models/unload", {"model": "a"})
        while next(m for m in get(url, "/v1/models")["data"] if m["id"] == "a")["state"] != "unloaded":
            time.sleep(0.01)
        begin = time.monotonic()
        complete(url, "a")
        loads.append(time.monotonic() - begin)
        pid = next(pid for pid, name in children(server.pid).items() if name == "a")
        begin = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        complete(url, "a")
        times.append(time.monotonic() - begin)
    stop.set()
    thread.join()
    return times, loads, beside


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lace", default="build/lace")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("model", nargs="?", default="models/tales-4m.gguf")
    a = parser.parse_args()
    path = os.path.abspath(a.model)
    # What one model needs is known once it is loaded: the budget is for two of them and a half.
    with tempfile.TemporaryDirectory() as folder:
        def serve(memory):
            with open(f"{folder}/models.toml", "w") as f:
                f.write(f'memory = "{memory}"\nkeep_alive = "10m"\n')
                for name in NAMES:
                    f.write(f'[models.{name}]\npath = "{path}"\nthreads = 1\n'
                            'ctx-size = 512\nkv-memory = "32M"\n')
            server = subprocess.Popen([a.lace, "serve", "--models", f"{folder}/models.toml",
                                       "--port", "0"], stdout=subprocess.PIPE, text=True)
            return server, server.stdout.readline().split()[-1]

        server, url = serve("64G")
        complete(url, "a")
        one = get(url, "/v1/models")["memory_bytes"]
        server.terminate()
        server.wait()
        budget = one * 5 // 2
        server, url = serve(budget)
        try:
            begin = time.monotonic()
            failures, most, said, times = random_requests(url, server, a.requests, budget, a.clients)
            seconds = time.monotonic() - begin
            killed, loads, beside = kills(url, server, a.kills)
        finally:
            server.terminate()
            code = server.wait()
    load = statistics.median(loads)
    print(f"requests        {len(times)} good, {len(failures)} failed, in {seconds:.1f} s")
    print(f"time            median {statistics.median(times) * 1e3:.0f} ms, most {max(times) * 1e3:.0f} ms")
    print(f"memory          budget {budget / 1e6:.1f} MB, counted at most {said / 1e6:.1f} MB, "
          f"measured at most {most / 1e6:.1f} MB")
    print(f"load            median {load * 1e3:.0f} ms, most {max(loads) * 1e3:.0f} ms")
    print(f"after kill -9   median {statistics.median(killed) * 1e3:.0f} ms, most {max(killed) * 1e3:.0f} ms "
          f"({len(killed)} kills)")
    print(f"streams beside  {beside['good']} whole, {beside['bad']} disturbed")
    for failure in failures[:5]:
        print(f"  {failure}")
    ok = (not failures and most <= budget and said <= budget and beside["bad"] == 0
          and max(killed) <= 3 * max(loads) and code == 0)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
