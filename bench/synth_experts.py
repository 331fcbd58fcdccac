#!/usr/bin/env python3
"""Models with experts of real shapes, and small ones, with random weights.

    bench/synth_experts.py SYNTH --shape gpt-oss-20b --type mxfp4 --vocab VOCAB --out FILE [--layers N]

SYNTH is a synth_gguf.py, which knows the experts of Qwen3; shapes of Mixtral and gpt-oss are added to
it here (biases, sinks and windows included). Large tensors of one size and type have the same weights,
since making random ones takes longer than anything that is done with them.
"""
import functools, importlib.util, random, sys

LARGE = 1 << 22  # values

# As in SYNTH: arch, layers, dim, heads, kv heads, head dim, ffn, vocab, tied, rope base, extra
SHAPES = {
    "micro-qwen3moe": ("qwen3moe", 2, 256, 4, 2, 64, 512, 32000, False, 1000000.0,
                       {"experts": 40, "used": 5, "expert_ffn": 256}),
    "micro-mixtral": ("llama", 2, 512, 4, 1, 128, 768, 32000, False, 1000000.0,
                      {"experts": 8, "used": 2, "expert_ffn": 768}),
    "micro-gpt-oss": ("gpt-oss", 3, 320, 4, 2, 64, 352, 32000, False, 150000.0,
                      {"experts": 12, "used": 4, "expert_ffn": 352}),
    "mixtral-8x7b": ("llama", 32, 4096, 32, 8, 128, 14336, 32000, False, 1000000.0,
                     {"experts": 8, "used": 2, "expert_ffn": 14336}),
    "gpt-oss-20b": ("gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, False, 150000.0,
                    {"experts": 32, "used": 4, "expert_ffn": 2880}),
}


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv[1])
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    plain, list_tensors, Reader, kv_bytes = synth.fill, synth.tensors, synth.Reader, synth.kv_bytes
    name = sys.argv[sys.argv.index("--shape") + 1]
    synth.SHAPES.update(SHAPES)
    arch, *rest = synth.SHAPES[name]
    synth.SHAPES["qwen3moe of it"] = ("qwen3moe", *rest)
    extra = rest[-1]

    @functools.lru_cache(None)
    def repeated(kind, count, std):
        return plain(random.Random(count), kind, count, std)

    def fill(rng, kind, count, std):
        return repeated(kind, count, std) if count >= LARGE else plain(rng, kind, count, std)

    def tensors(shape, kind):
        heads, dim = rest[2], rest[1]
        for name, dims, t, std in list_tensors("qwen3moe of it", kind):
            part = name.split(".")[2] if name.startswith("blk.") else ""
            if arch != "qwen3moe" and part in ("attn_q_norm", "attn_k_norm"):
                continue
            if arch != "gpt-oss" or not part:
                yield name, dims, t, std
                continue
            yield name.replace("ffn_norm", "post_attention_norm"), dims, t, std
            if not part.endswith("norm"):
                yield name.replace(".weight", ".bias"), dims[1:], "f32", 0.05
            if part == "attn_v":
                yield name.replace("attn_v", "attn_sinks"), (heads,), "f32", 0.5

    class With(Reader):  # numbers that SYNTH does not write travel among the vocabulary's
        def __init__(self, path):
            super().__init__(path)
            more = {"expert_count": extra["experts"], "expert_used_count": extra["used"],
                    "expert_feed_forward_length": extra["expert_ffn"]}
            if arch == "gpt-oss":
                more["attention.sliding_window"] = 128
            for key, value in more.items() if arch != "qwen3moe" else ():
                self.kv["tokenizer.+%s.%s" % (arch, key)] = (4, value)

    synth.fill, synth.tensors, synth.Reader = fill, tensors, With
    synth.kv_bytes = lambda key, t, v: kv_bytes(key.replace("tokenizer.+", ""), t, v)
    sys.argv = sys.argv[1:]
    synth.main()


main()
