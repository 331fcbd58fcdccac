#!/usr/bin/env python3
"""Models of more real shapes, and small ones of the same architectures, with random weights.

    bench/synth_more.py SYNTH --shape gpt-oss-20b --type mxfp4 --vocab VOCAB --out FILE [--layers N]

SYNTH is a synth_gguf.py, which knows llama, qwen2, qwen3, phi3 and the experts of Qwen3. Shapes of
Mixtral and gpt-oss (biases, sinks and windows included), and of Gemma and OLMo, whose norms are behind
matrices, are added to it here; and heads of other sizes, and such that are turned in part; and small delta nets, also with experts
(synth_real.py has the real ones). Large tensors of one size and type have the same weights, since making
random ones takes longer than anything that is done with them. Weights of norms are random in small models.
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
                      {"experts": 12, "used": 4, "expert_ffn": 352, "window": 48}),
    "micro-gemma2": ("gemma2", 3, 512, 4, 2, 128, 768, 32000, False, 10000.0, {"window": 32}),
    "micro-gemma3": ("gemma3", 7, 512, 4, 2, 256, 768, 32000, False, 1000000.0, {"window": 32}),
    "micro-80": ("llama", 2, 320, 4, 2, 80, 512, 32000, False, 10000.0, {}),
    "micro-96": ("llama", 2, 384, 4, 2, 96, 512, 32000, False, 10000.0, {}),
    "micro-phi3": ("phi3", 2, 384, 4, 4, 96, 512, 32000, False, 10000.0, {}),
    "micro-phi4-mini": ("phi3", 2, 512, 6, 2, 128, 768, 32000, False, 10000.0, {"turned": 96}),
    "micro-olmo2": ("olmo2", 3, 512, 4, 4, 128, 768, 32000, False, 500000.0, {}),
    "mixtral-8x7b": ("llama", 32, 4096, 32, 8, 128, 14336, 32000, False, 1000000.0,
                     {"experts": 8, "used": 2, "expert_ffn": 14336}),
    "gpt-oss-20b": ("gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, False, 150000.0,
                    {"experts": 32, "used": 4, "expert_ffn": 2880, "window": 128}),
    "gemma2-9b": ("gemma2", 42, 3584, 16, 8, 256, 14336, 256000, True, 10000.0, {"window": 4096}),
    "gemma3-4b": ("gemma3", 34, 2560, 8, 4, 256, 10240, 262144, True, 1000000.0, {"window": 1024}),
    "micro-qwen3.5": ("qwen35", 4, 256, 4, 2, 64, 512, 32000, False, 10000.0,
                      {"delta": (2, 4, 32, 32), "turned": 16}),
    "micro-qwen3.5-moe": ("qwen35moe", 4, 256, 4, 2, 64, 256, 32000, False, 10000.0,
                          {"delta": (2, 4, 64, 64), "turned": 16, "experts": 72, "used": 6, "expert_ffn": 256}),
    "micro-mistral3": ("mistral3", 2, 512, 4, 2, 128, 768, 32000, False, 10000.0, {"temperature": 32}),
    "olmo2-7b": ("olmo2", 32, 4096, 32, 32, 128, 11008, 100352, False, 500000.0, {}),
}


def of_gpt_oss(name, part, dims, t, std, heads):
    yield name.replace("ffn_norm", "post_attention_norm"), dims, t, std
    if not part.endswith("norm"):
        yield name.replace(".weight", ".bias"), dims[1:], "f32", 0.05
    if part == "attn_v":
        yield name.replace("attn_v", "attn_sinks"), (heads,), "f32", 0.5


def of_post_norms(arch, name, part, dims, t, std, heads, kv_heads):
    """Gemma and OLMo."""
    is_olmo = arch == "olmo2"
    if part in ("attn_q_norm", "attn_k_norm") and is_olmo:  # of all heads at once
        dims = (dims[0] * (heads if part == "attn_q_norm" else kv_heads),)
    if not (is_olmo and part in ("attn_norm", "ffn_norm")):
        yield name, dims, t, std
    behind = {"attn_output": "post_attention_norm", "ffn_down": "post_ffw_norm"}.get(part)
    if behind:
        yield name.replace(part, behind), dims[1:], "one", 1


def of_delta(name, part, dims, t, std, delta, ffn, kind):
    """Qwen3.5: three delta nets, then a layer that attends, whose q has a gate."""
    n_keys, n_heads, k_dim, v_dim = delta
    i, dim = int(name.split(".")[1]), dims[0]
    p, width, inner = "blk.%d." % i, 2 * n_keys * k_dim + n_heads * v_dim, n_heads * v_dim
    if part == "ffn_norm":
        yield p + "post_attention_norm.weight", dims, t, std
        if ffn:  # a shared expert, of the width of the others
            for n in "gate", "up":
                yield p + "ffn_%s_shexp.weight" % n, (dim, ffn), kind, 0.05
            yield p + "ffn_down_shexp.weight", (ffn, dim), kind, 0.05
            yield p + "ffn_gate_inp_shexp.weight", (dim,), "f32", 0.05
    elif i % 4 == 3 or part.startswith("ffn") or part == "attn_norm":
        yield name, (dim, 2 * dims[1]) if part == "attn_q" else dims, t, std
    elif part == "attn_q":
        yield p + "attn_qkv.weight", (dim, width), t, std
        yield p + "attn_gate.weight", (dim, inner), t, std
        for n in "ssm_alpha", "ssm_beta":
            yield p + n + ".weight", (dim, n_heads), t, std
        yield p + "ssm_conv1d.weight", (4, width), "f32", 0.5
        yield p + "ssm_a", (n_heads,), "f32", -0.05
        yield p + "ssm_dt.bias", (n_heads,), "f32", 0.5
        yield p + "ssm_norm.weight", (v_dim,), "one", 1
    elif part == "attn_output":
        yield p + "ssm_out.weight", (inner, dims[1]), t, std


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv[1])
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    plain, list_tensors, Reader, kv_bytes = synth.fill, synth.tensors, synth.Reader, synth.kv_bytes
    shape = sys.argv[sys.argv.index("--shape") + 1]
    synth.SHAPES.update(SHAPES)
    arch, *rest = synth.SHAPES[shape]
    heads, kv_heads, extra = rest[2], rest[3], rest[-1]
    known = arch if arch == "phi3" else "qwen3moe" if "experts" in extra else "qwen3"
    synth.SHAPES["known"] = (known, *rest)

    @functools.lru_cache(None)
    def repeated(kind, count, std):
        return plain(random.Random(count), kind, count, std)

    def fill(rng, kind, count, std):
        if std < 0:  # floats below 0
            raw = plain(rng, kind, count, -std)
            raw[3::4] = bytes(b | 0x80 for b in raw[3::4])
            return raw
        return repeated(kind, count, std) if count >= LARGE else plain(rng, kind, count, std)

    def tensors(_, kind):
        for name, dims, t, std in list_tensors("known", kind):
            part = name.split(".")[2] if name.startswith("blk.") else ""
            if part in ("attn_q_norm", "attn_k_norm") and arch in ("llama", "gpt-oss", "gemma2", "mistral3"):
                continue
            more = ([(name, dims, t, std)] if not part or arch in ("llama", "qwen3moe", "phi3", "mistral3") else
                    of_gpt_oss(name, part, dims, t, std, heads) if arch == "gpt-oss" else
                    of_delta(name, part, dims, t, std, extra["delta"], extra.get("expert_ffn"), kind)
                    if "delta" in extra else
                    of_post_norms(arch, name, part, dims, t, std, heads, kv_heads))
            for name, dims, t, std in more:
                is_random = t == "one" and shape.startswith("micro")
                yield (name, dims, "f32", 0.5) if is_random else (name, dims, t, std)

    class With(Reader):  # numbers that SYNTH does not write travel among the vocabulary's
        def __init__(self, path):
            super().__init__(path)
            more = {}
            if "experts" in extra and arch != "qwen3moe":
                more.update({"expert_count": (4, extra["experts"]), "expert_used_count": (4, extra["used"]),
                             "expert_feed_forward_length": (4, extra["expert_ffn"])})
            if "window" in extra:
                more["attention.sliding_window"] = (4, extra["window"])
            if "temperature" in extra:
                more.update({"attention.temperature_scale": (6, 0.1),
                             "attention.temperature_length": (4, extra["temperature"])})
            if arch == "gemma2":
                more.update({"attn_logit_softcapping": (6, 50.0), "final_logit_softcapping": (6, 30.0)})
            if arch == "qwen35moe":
                more["expert_shared_feed_forward_length"] = (4, extra["expert_ffn"])
            if "delta" in extra:
                n_keys, n_heads, k_dim, v_dim = extra["delta"]
                more.update({"ssm.conv_kernel": (4, 4), "ssm.state_size": (4, k_dim),
                             "ssm.group_count": (4, n_keys), "ssm.time_step_rank": (4, n_heads),
                             "ssm.inner_size": (4, n_heads * v_dim), "full_attention_interval": (4, 4),
                             "rope.dimension_sections": (9, (5, [extra["turned"] // 2, 0, 0, 0]))})
            for key, value in more.items():
                self.kv["tokenizer.+%s.%s" % (arch, key)] = value

    synth.fill, synth.tensors, synth.Reader = fill, tensors, With
    changed = {"%s.rope.dimension_count" % arch: extra["turned"]} if "turned" in extra else {}
    synth.kv_bytes = lambda key, t, v: kv_bytes(key.replace("tokenizer.+", ""), t, changed.get(key, v))
    sys.argv = sys.argv[1:]
    synth.main()


main()
