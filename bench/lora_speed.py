#!/usr/bin/env python3
"""Speed of requests with LoRA adapters against the same requests without any.

    bench/lora_speed.py build/lace model.gguf [--adapters 8] [--requests 32] [--rank 16] [--rounds 3] [--device auto]

Makes adapters of random f16 values for all seven matrices of each layer, as PEFT writes them (the model
must have the names of Llama), serves the model twice, with the adapters and without, and sends both
servers the same requests in turn: REQUESTS at once, spread over the adapters. Prints the tokens per second, and
per second of processor time, the medians of the rounds, and their ratios. Needs only the standard library.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request


def random_f16(n):
    """n values of magnitude 1/64 to 1/32, of both signs."""
    mask = int.from_bytes(struct.pack("<H", 0x83FF) * n, "little")
    base = int.from_bytes(struct.pack("<H", 0x2400) * n, "little")
    return (int.from_bytes(os.urandom(2 * n), "little") & mask | base).to_bytes(2 * n, "little")


def write_adapter(path, shape, rank):
    kv = shape["n_kv_heads"] * shape["head_dim"]
    q = shape["n_heads"] * shape["head_dim"]
    e, f = shape["n_embd"], shape["n_ff"]
    sizes = {"self_attn.q_proj": (e, q), "self_attn.k_proj": (e, kv), "self_attn.v_proj": (e, kv),
             "self_attn.o_proj": (q, e), "mlp.gate_proj": (e, f), "mlp.up_proj": (e, f), "mlp.down_proj": (f, e)}
    os.makedirs(path)
    head, parts, offset = {}, [], 0
    for layer in range(shape["n_layers"]):
        for name, (n_in, n_out) in sizes.items():
            for half, dims in (("A", (rank, n_in)), ("B", (n_out, rank))):
                parts.append(random_f16(dims[0] * dims[1]))
                end = offset + len(parts[-1])
                head[f"base_model.model.model.layers.{layer}.{name}.lora_{half}.weight"] = {
                    "dtype": "F16", "shape": list(dims), "data_offsets": [offset, end]}
                offset = end
    text = json.dumps(head).encode()
    with open(os.path.join(path, "adapter_model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    with open(os.path.join(path, "adapter_config.json"), "w") as out:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}, out)
    return offset


class Server:
    def __init__(self, lace, model, arguments, socket_port):
        self.url = f"http://127.0.0.1:{socket_port}"
        self.process = subprocess.Popen([lace, "serve", model, "--port", str(socket_port), "-c", "512",
                                         "--no-prefix-cache"] + arguments, stdout=subprocess.PIPE)
        self.process.stdout.readline()  # it listens

    def ask(self, model, prompt, n_tokens, counts):
        body = {"model": model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            counts.append(json.load(answer)["usage"]["completion_tokens"])

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def speed(self, models, n_requests, n_tokens):
        """Tokens per second, and per second of processor time, which other programs disturb less."""
        counts = []
        prompts = [[1] + [(7 * i + 13 * k) % 3000 + 10 for k in range(16)] for i in range(n_requests)]
        threads = [threading.Thread(target=self.ask, args=(models[i % len(models)], prompts[i], n_tokens, counts))
                   for i in range(n_requests)]
        begin, cpu = time.monotonic(), self.cpu_seconds()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if len(counts) != n_requests:
            raise SystemExit("a request failed")
        return sum(counts) / (time.monotonic() - begin), sum(counts) / (self.cpu_seconds() - cpu)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lace")
    parser.add_argument("model")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=18200)
    parser.add_argument("--device", default="auto")
    a = parser.parse_args()
    shape = json.loads(subprocess.run([a.lace, "inspect", a.model, "-o", "json"], check=True,
                                      capture_output=True).stdout)["model"]
    with tempfile.TemporaryDirectory() as folder:
        options, names, n_bytes = [], [], 0
        for i in range(a.adapters):
            n_bytes = write_adapter(f"{folder}/a{i}", shape, a.rank)
            options += ["--lora", f"a{i}={folder}/a{i}"]
            names.append(f"a{i}")
        base = Server(a.lace, a.model, ["--device", a.device], a.port)
        adapted = Server(a.lace, a.model, options + ["--device", a.device], a.port + 1)
        try:
            ways = {"base": (base, ["base"]), "adapters": (adapted, names), "none of them": (adapted, ["base"])}
            for server, models in ways.values():
                server.speed(models, a.requests, 4)
            found = {name: [] for name in ways}
            for _ in range(a.rounds):
                for name, (server, models) in ways.items():
                    found[name].append(server.speed(models, a.requests, a.tokens))
        finally:
            base.stop()
            adapted.stop()
    print(f"{a.adapters} adapters of rank {a.rank}, {n_bytes / 1e6:.1f} MB each, {a.requests} requests at once, "
          f"{a.tokens} tokens each")
    for i, unit in enumerate(("tokens/s", "tokens per second of processor time")):
        print(unit)
        for name, rounds in found.items():
            x = [r[i] for r in rounds]
            ratio = statistics.median(r[i] / b[i] for r, b in zip(rounds, found["base"]))
            print(f"  {name:14} {statistics.median(x):8.1f}  {ratio:.3f} of the base  (" +
                  " ".join(f"{v:.1f}" for v in x) + ")")


if __name__ == "__main__":
    main()
