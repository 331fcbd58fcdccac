#!/usr/bin/env python3
"""Models with state spaces of real shapes, with random weights.

    bench/synth_hybrid.py SYNTH --shape granite4-h-1b --type q4_0 --vocab VOCAB --out FILE [--layers N]

SYNTH is a synth_gguf.py, whose types, vocabulary and random numbers are used.
"""
import argparse, importlib.util, random, struct, sys

# dim, layers, one of n attends, heads, kv heads, head dim, ffn, experts, used, shared, vocab,
# heads and head dim of the state space, its state
SHAPES = {
    "micro-granite4-h": (256, 8, 3, 4, 2, 64, 512, 0, 0, 0, 32000, 8, 64, 32),
    "granite4-h-1b": (1536, 40, 10, 12, 4, 128, 4096, 0, 0, 0, 100352, 48, 64, 128),
    "granite4-h-tiny": (1536, 40, 10, 12, 4, 128, 512, 64, 6, 1024, 100352, 48, 64, 128),
}


def tensors(shape, n_layers, kind):
    dim, _, every, heads, kvh, hd, ffn, experts, _, shared, vocab, sh, sd, state = shape
    inner, conv = sh * sd, sh * sd + 2 * state
    yield "token_embd.weight", (dim, vocab), kind, 1.0
    for i in range(n_layers):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", (dim,), "one", 1
        if i % every == min(5, every - 1):
            for n, r in (("attn_q", heads * hd), ("attn_k", kvh * hd), ("attn_v", kvh * hd)):
                yield p + n + ".weight", (dim, r), kind, dim ** -0.5
            yield p + "attn_output.weight", (heads * hd, dim), kind, dim ** -0.5
        else:
            yield p + "ssm_in.weight", (dim, inner + conv + sh), kind, dim ** -0.5
            yield p + "ssm_out.weight", (inner, dim), kind, inner ** -0.5
            yield p + "ssm_conv1d.weight", (4, conv), "f32", 0.4
            yield p + "ssm_conv1d.bias", (conv,), "f32", 0.1
            yield p + "ssm_a", (1, sh), "minus", 1
            yield p + "ssm_d", (1, sh), "one", 1
            yield p + "ssm_dt.bias", (sh,), "f32", 0.5
            yield p + "ssm_norm.weight", (inner, 1), "one", 1
        yield p + "ffn_norm.weight", (dim,), "one", 1
        names = [("", ffn, 0)] if not experts else [("_exps", ffn, experts), ("_shexp", shared, 0)]
        if experts:
            yield p + "ffn_gate_inp.weight", (dim, experts), "f32", dim ** -0.5
        for end, width, n in names:
            more = (n,) if n else ()
            yield p + f"ffn_gate{end}.weight", (dim, width) + more, kind, dim ** -0.5
            yield p + f"ffn_up{end}.weight", (dim, width) + more, kind, dim ** -0.5
            yield p + f"ffn_down{end}.weight", (width, dim) + more, kind, width ** -0.5
    yield "output_norm.weight", (dim,), "one", 1


def keys(shape, n_layers, name):
    dim, _, every, heads, kvh, hd, ffn, experts, used, shared, vocab, sh, sd, state = shape
    a = "granitehybrid."
    yield from (("general.architecture", 8, "granitehybrid"), ("general.name", 8, "synthetic " + name))
    for k, v in (("block_count", n_layers), ("context_length", 8192), ("embedding_length", dim),
                 ("feed_forward_length", ffn), ("attention.head_count", heads), ("vocab_size", vocab),
                 ("attention.key_length", hd), ("attention.value_length", hd), ("expert_count", experts),
                 ("expert_used_count", used), ("expert_shared_feed_forward_length", shared),
                 ("rope.dimension_count", hd), ("ssm.conv_kernel", 4), ("ssm.inner_size", sh * sd),
                 ("ssm.state_size", state), ("ssm.time_step_rank", sh), ("ssm.group_count", 1)):
        yield a + k, 4, v
    yield a + "attention.head_count_kv", 9, (5, [kvh if i % every == min(5, every - 1) else 0 for i in range(n_layers)])
    yield a + "attention.layer_norm_rms_epsilon", 6, 1e-5
    yield a + "rope.scaling.finetuned", 7, False
    for k, v in (("embedding_scale", 12.0), ("residual_scale", 0.22), ("logit_scale", 6.0), ("attention.scale", 0.0078125)):
        yield a + k, 6, v


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv.pop(1))
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    ap = argparse.ArgumentParser()
    for o in ("--shape", "--type", "--vocab", "--out"):
        ap.add_argument(o, required=True)
    ap.add_argument("--layers", type=int)
    a = ap.parse_args()
    shape = SHAPES[a.shape]
    n_layers, vocab = a.layers or shape[1], shape[10]
    kv = list(keys(shape, n_layers, a.shape))
    pad = {"tokenizer.ggml.tokens": lambda i: f"<unused{i}>".encode(),
           "tokenizer.ggml.scores": lambda i: -1e4, "tokenizer.ggml.token_type": lambda i: 5}
    for k, (t, v) in synth.Reader(a.vocab).kv.items():
        if k.startswith("tokenizer."):
            kv.append((k, t, (v[0], v[1] + [pad[k](i) for i in range(vocab - len(v[1]))]) if k in pad else v))
    infos, off = [], 0
    for name, dims, kind, std in tensors(shape, n_layers, a.type):
        real = "f32" if kind in ("one", "minus") else kind
        count = 1
        for d in dims:
            count *= d
        size = count // synth.TYPES[real][1] * synth.TYPES[real][2]
        infos.append((name, dims, kind, real, count, size, off, std))
        off += (size + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(kv)) + b"".join(synth.kv_bytes(*x) for x in kv)
    for name, dims, _, real, _, _, o, _ in infos:
        n = name.encode()
        head += struct.pack("<Q", len(n)) + n + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", synth.TYPES[real][0], o)
    made = {}
    with open(a.out, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for name, dims, kind, real, count, size, _, std in infos:
            if (kind, count, std) not in made:  # layers share what is random
                plain = {"one": 1.0, "minus": -1.0}.get(kind)
                made[kind, count, std] = (struct.pack("<f", plain) * count if plain else
                                          synth.fill(random.Random(name), real, count, std))
            f.write(made[kind, count, std] + b"\0" * (-size % 32))
    print(f"{a.out}: {len(infos)} tensors, {off / 1e6:.1f} MB of weights")


if __name__ == "__main__":
    main()
