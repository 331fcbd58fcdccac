#!/usr/bin/env python3
"""Models of the real shapes of newer families, with random weights, as GGUF files that any engine loads.

    bench/synth_real.py SYNTH --shape qwen3.5-4b --type q4_k_m --vocab VOCAB --out FILE [--layers N]

SYNTH is a synth_gguf.py, whose types, vocabulary and random numbers are used. Keys, names and shapes of
tensors are llama.cpp's; so is the choice of types of q4_k_m. Layers share what is random, and large
tensors repeat it, since making random numbers takes longer than anything that is done with them.
--layers cuts a model that is too large for a machine: what is left of it has the real shapes.
"""
import argparse, importlib.util, math, random, struct, sys

REPEATED = 1 << 24  # values
U32, I32, F32, BOOL, TEXT, LIST = 4, 5, 6, 7, 8, 9

SHAPES = {
    "qwen3.5-4b": dict(arch="qwen35", layers=32, dim=2560, heads=16, kv_heads=4, head=256, ffn=9216, vocab=248320,
                       tied=True, delta=(16, 32, 128), turned=64),
    "qwen3.5-35b-a3b": dict(arch="qwen35moe", layers=40, dim=2048, heads=16, kv_heads=2, head=256, ffn=0, vocab=248320,
                            tied=False, delta=(16, 32, 128), turned=64, experts=256, used=8, expert_ffn=512,
                            shared_ffn=512),
    "gemma-4-e4b": dict(arch="gemma4", layers=42, dim=2560, heads=8, kv_heads=2, head=512, head_swa=256, ffn=10240,
                        vocab=262144, tied=True, per_layer=256, sharing=18, window=512, every=6),
    "glm-4.7-flash": dict(arch="deepseek2", layers=47, dim=2048, heads=20, ffn=10240, vocab=154880, tied=False,
                          q_rank=768, kv_rank=512, nope=192, turned=64, v_head=256, experts=64, used=4, expert_ffn=1536,
                          shared_ffn=1536, dense=1),
    "granite-4.0-h-1b": dict(arch="granitehybrid", layers=40, dim=1536, heads=12, kv_heads=4, head=128, ffn=4096,
                             vocab=100352, tied=True, space=(48, 64, 128), every=10, at=5),
    "granite-4.0-h-tiny": dict(arch="granitehybrid", layers=40, dim=1536, heads=12, kv_heads=4, head=128, ffn=512,
                               vocab=100352, tied=True, space=(48, 64, 128), every=10, at=5, experts=64, used=6,
                               expert_ffn=512, shared_ffn=1024),
    "nomic-embed-text-v1.5": dict(arch="nomic-bert", layers=12, dim=768, heads=12, ffn=3072, vocab=30528, tied=True),
    "micro-gemma4": dict(arch="gemma4", layers=6, dim=256, heads=4, kv_heads=2, head=128, head_swa=64, ffn=512,
                         vocab=32000, tied=True, per_layer=32, sharing=3, window=48, every=3),
    "micro-gemma4-wide": dict(arch="gemma4", layers=6, dim=256, heads=4, kv_heads=2, head=512, head_swa=256, ffn=512,
                              vocab=32000, tied=True, per_layer=32, sharing=3, window=48, every=3),
    "micro-glm-flash": dict(arch="deepseek2", layers=3, dim=256, heads=4, ffn=512, vocab=32000, tied=False, q_rank=128,
                            kv_rank=128, nope=64, turned=32, v_head=64, experts=8, used=2, expert_ffn=256,
                            shared_ffn=256, dense=1),
    "micro-deepseek": dict(arch="deepseek2", layers=3, dim=512, heads=16, ffn=512, vocab=32000, tied=False, q_rank=256,
                           kv_rank=512, nope=128, turned=64, v_head=128, experts=8, used=2, expert_ffn=256,
                           shared_ffn=256, dense=1),
    "micro-qwen3.5-moe": dict(arch="qwen35moe", layers=4, dim=256, heads=4, kv_heads=2, head=64, ffn=0, vocab=32000,
                              tied=False, delta=(2, 4, 32), turned=16, experts=16, used=4, expert_ffn=256,
                              shared_ffn=256),
    "micro-granite4-h": dict(arch="granitehybrid", layers=8, dim=256, heads=4, kv_heads=2, head=64, ffn=512,
                             vocab=32000, tied=True, space=(8, 64, 32), every=3, at=2),
    "micro-nomic": dict(arch="nomic-bert", layers=2, dim=192, heads=3, ffn=256, vocab=30528, tied=True),
}


class Shape:
    """A shape's settings as attributes; what a shape does not have is 0."""

    def __init__(self, name, layers):
        self.name = name
        self.__dict__.update(SHAPES[name])
        self.layers = layers or self.layers

    def __getattr__(self, name):
        return 0


def ones(name, count):
    return name + ".weight", (count,), "one", 1


def matrix(name, row, rows, *more):
    """A matrix whose type is chosen later."""
    return name + ".weight", (row, rows) + more, "", row ** -0.5


def experts(p, s):
    yield p + "ffn_gate_inp.weight", (s.dim, s.experts), "f32", s.dim ** -0.5
    for end, width, more in (("_exps", s.expert_ffn, (s.experts,)), ("_shexp", s.shared_ffn, ())):
        yield matrix(p + "ffn_gate" + end, s.dim, width, *more)
        yield matrix(p + "ffn_up" + end, s.dim, width, *more)
        yield matrix(p + "ffn_down" + end, width, s.dim, *more)


def ffn(p, s):
    yield matrix(p + "ffn_gate", s.dim, s.ffn)
    yield matrix(p + "ffn_up", s.dim, s.ffn)
    yield matrix(p + "ffn_down", s.ffn, s.dim)


def attention(p, s, head, gates=1):
    yield matrix(p + "attn_q", s.dim, gates * s.heads * head)
    yield matrix(p + "attn_k", s.dim, s.kv_heads * head)
    yield matrix(p + "attn_v", s.dim, s.kv_heads * head)
    yield matrix(p + "attn_output", s.heads * head, s.dim)


def layer_of_qwen35(i, p, s):
    keys, values, d = s.delta
    width, inner = (2 * keys + values) * d, values * d
    yield ones(p + "attn_norm", s.dim)
    if i % 4 == 3:
        yield from attention(p, s, s.head, gates=2)
        yield ones(p + "attn_q_norm", s.head)
        yield ones(p + "attn_k_norm", s.head)
    else:
        yield matrix(p + "attn_qkv", s.dim, width)
        yield matrix(p + "attn_gate", s.dim, inner)
        yield matrix(p + "ssm_alpha", s.dim, values)
        yield matrix(p + "ssm_beta", s.dim, values)
        yield p + "ssm_conv1d.weight", (4, width), "f32", 0.5
        yield p + "ssm_a", (values,), "minus", 1
        yield p + "ssm_dt.bias", (values,), "f32", 0.5
        yield ones(p + "ssm_norm", d)
        yield matrix(p + "ssm_out", inner, s.dim)
    yield ones(p + "post_attention_norm", s.dim)
    yield from experts(p, s) if s.experts else ffn(p, s)
    if s.experts:
        yield p + "ffn_gate_inp_shexp.weight", (s.dim, 1), "f32", s.dim ** -0.5


def is_windowed(i, s):
    return i % s.every != s.every - 1


def layer_of_gemma4(i, p, s):
    head = s.head_swa if is_windowed(i, s) else s.head
    for n in "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm":
        yield ones(p + n, s.dim)
    yield ones(p + "attn_q_norm", head)
    for t in attention(p, s, head):
        if i < s.layers - s.sharing or t[0].split(".")[2] not in ("attn_k", "attn_v"):
            yield t
    if i < s.layers - s.sharing:
        yield ones(p + "attn_k_norm", head)
    yield from ffn(p, s)
    yield matrix(p + "inp_gate", s.dim, s.per_layer)
    yield matrix(p + "proj", s.per_layer, s.dim)
    yield ones(p + "layer_output_scale", 1)


def layer_of_deepseek2(i, p, s):
    yield ones(p + "attn_norm", s.dim)
    yield matrix(p + "attn_q_a", s.dim, s.q_rank)
    yield ones(p + "attn_q_a_norm", s.q_rank)
    yield matrix(p + "attn_q_b", s.q_rank, s.heads * (s.nope + s.turned))
    yield matrix(p + "attn_kv_a_mqa", s.dim, s.kv_rank + s.turned)
    yield ones(p + "attn_kv_a_norm", s.kv_rank)
    yield matrix(p + "attn_k_b", s.nope, s.kv_rank, s.heads)
    yield matrix(p + "attn_v_b", s.kv_rank, s.v_head, s.heads)
    yield matrix(p + "attn_output", s.heads * s.v_head, s.dim)
    yield ones(p + "ffn_norm", s.dim)
    yield from ffn(p, s) if i < s.dense else experts(p, s)
    if i >= s.dense:
        yield p + "exp_probs_b.bias", (s.experts,), "f32", 0.1


def layer_of_granitehybrid(i, p, s):
    heads, d, state = s.space
    inner, width = heads * d, heads * d + 2 * state
    yield ones(p + "attn_norm", s.dim)
    if i % s.every == s.at:
        yield from attention(p, s, s.head)
    else:
        yield matrix(p + "ssm_in", s.dim, inner + width + heads)
        yield matrix(p + "ssm_out", inner, s.dim)
        yield p + "ssm_conv1d.weight", (4, width), "f32", 0.4
        yield p + "ssm_conv1d.bias", (width,), "f32", 0.1
        yield p + "ssm_a", (1, heads), "minus", 1
        yield p + "ssm_d", (1, heads), "one", 1
        yield p + "ssm_dt.bias", (heads,), "f32", 0.5
        yield p + "ssm_norm.weight", (inner, 1), "one", 1
    yield ones(p + "ffn_norm", s.dim)
    yield from experts(p, s) if s.experts else ffn(p, s)


def layer_of_nomic(i, p, s):
    yield matrix(p + "attn_qkv", s.dim, 3 * s.dim)
    yield matrix(p + "attn_output", s.dim, s.dim)
    yield from ffn(p, s)
    for n in "attn_output_norm", "layer_output_norm":
        yield ones(p + n, s.dim)
        yield p + n + ".bias", (s.dim,), "f32", 0.1


LAYER_OF = {"qwen35": layer_of_qwen35, "qwen35moe": layer_of_qwen35, "gemma4": layer_of_gemma4,
            "deepseek2": layer_of_deepseek2, "granitehybrid": layer_of_granitehybrid, "nomic-bert": layer_of_nomic}


def tensors(s):
    """(name, dims with the row length first, type or "" for the model's, deviation) of every tensor."""
    yield "token_embd.weight", (s.dim, s.vocab), "", 1.0
    if s.arch == "nomic-bert":
        yield "token_types.weight", (s.dim, 2), "f32", 0.1
        yield ones("token_embd_norm", s.dim)
        yield "token_embd_norm.bias", (s.dim,), "f32", 0.1
    if s.arch == "gemma4":
        yield "per_layer_token_embd.weight", (s.per_layer * s.layers, s.vocab), "", 1.0
        yield "per_layer_model_proj.weight", (s.dim, s.per_layer * s.layers), "bf16", s.dim ** -0.5
        yield ones("per_layer_proj_norm", s.per_layer)
        yield "rope_freqs.weight", (s.head // 2,), "part", s.head // 8  # a quarter of a head is turned
    for i in range(s.layers):
        yield from LAYER_OF[s.arch](i, "blk.%d." % i, s)
    if s.arch != "nomic-bert":
        yield ones("output_norm", s.dim)
    if not s.tied:
        yield matrix("output", s.dim, s.vocab)


def choose_type(synth, kind, name, row, s):
    """The type of a matrix, as llama.cpp's quantizer takes it."""
    parts = name.split(".")
    i, part = (int(parts[1]), parts[2]) if parts[0] == "blk" else (0, parts[0])
    mixed = kind == "q4_k_m"
    chosen = "q4_k" if mixed else kind
    if chosen.endswith("_k") or chosen in ("q4_0", "q4_1", "iq4_xs", "iq4_nl"):
        if part == "output" or s.tied and part.endswith("token_embd"):
            chosen = "q6_k"
    if mixed and part == "attn_qkv":
        chosen = "q5_k"
    if mixed and (part == "attn_v" or part.startswith("ffn_down")):
        eighth = s.layers // 8
        if i < eighth or i >= 7 * s.layers // 8 or (i - eighth) % 3 == 2:
            chosen = "q6_k"
    if row % synth.TYPES[chosen][1]:
        chosen = {"q4_k": "q5_0", "q5_k": "q5_1"}.get(chosen, "q8_0")
    return chosen if row % synth.TYPES[chosen][1] == 0 else "f16"


def keys_of_delta(s):
    n, values, d = s.delta
    yield from (("ssm.conv_kernel", U32, 4), ("ssm.state_size", U32, d), ("ssm.group_count", U32, n),
                ("ssm.time_step_rank", U32, values), ("ssm.inner_size", U32, values * d),
                ("full_attention_interval", U32, 4), ("rope.dimension_count", U32, s.turned))
    yield "rope.dimension_sections", LIST, (I32, [(s.turned // 2 + i) // 3 for i in (2, 1, 0)] + [0])


def keys_of_gemma4(s):
    yield from (("attention.sliding_window", U32, s.window), ("attention.shared_kv_layers", U32, s.sharing),
                ("embedding_length_per_layer_input", U32, s.per_layer), ("attention.key_length_swa", U32, s.head_swa),
                ("attention.value_length_swa", U32, s.head_swa), ("rope.dimension_count", U32, s.head),
                ("rope.dimension_count_swa", U32, s.head_swa), ("rope.freq_base_swa", F32, 10000.0),
                ("final_logit_softcapping", F32, 30.0))
    yield "attention.sliding_window_pattern", LIST, (BOOL, [is_windowed(i, s) for i in range(s.layers)])


def keys_of_latent(s):
    yield from (("attention.q_lora_rank", U32, s.q_rank), ("attention.kv_lora_rank", U32, s.kv_rank),
                ("attention.key_length", U32, s.kv_rank + s.turned), ("attention.value_length", U32, s.kv_rank),
                ("attention.key_length_mla", U32, s.nope + s.turned), ("attention.value_length_mla", U32, s.v_head),
                ("rope.dimension_count", U32, s.turned), ("leading_dense_block_count", U32, s.dense),
                ("expert_shared_count", U32, 1), ("expert_group_count", U32, 1), ("expert_group_used_count", U32, 1),
                ("expert_gating_func", U32, 2), ("expert_weights_scale", F32, 1.8), ("expert_weights_norm", BOOL, True))


def keys_of_space(s):
    heads, d, state = s.space
    yield from (("rope.dimension_count", U32, s.head), ("ssm.conv_kernel", U32, 4), ("ssm.inner_size", U32, heads * d),
                ("ssm.state_size", U32, state), ("ssm.time_step_rank", U32, heads), ("ssm.group_count", U32, 1),
                ("rope.scaling.finetuned", BOOL, False), ("embedding_scale", F32, 12.0), ("residual_scale", F32, 0.22),
                ("logit_scale", F32, 6.0), ("attention.scale", F32, 0.0078125))
    yield "attention.head_count_kv", LIST, (I32, [s.kv_heads * (i % s.every == s.at) for i in range(s.layers)])


def keys(s):
    """(key without the architecture, type, value)"""
    yield from (("block_count", U32, s.layers), ("context_length", U32, 8192), ("embedding_length", U32, s.dim),
                ("attention.head_count", U32, s.heads), ("vocab_size", U32, s.vocab))
    if s.arch == "nomic-bert":
        yield from (("attention.layer_norm_epsilon", F32, 1e-12), ("rope.freq_base", F32, 1000.0),
                    ("attention.causal", BOOL, False), ("pooling_type", U32, 1))
    else:
        base = {"qwen35": 1e7, "qwen35moe": 1e7, "granitehybrid": 1e4}.get(s.arch, 1e6)
        yield from (("attention.layer_norm_rms_epsilon", F32, 1e-6), ("rope.freq_base", F32, base))
    if s.ffn:
        yield "feed_forward_length", U32, s.ffn
    if s.arch != "granitehybrid" and s.arch != "nomic-bert":
        yield "attention.head_count_kv", U32, s.kv_heads or 1
    if s.head:
        yield from (("attention.key_length", U32, s.head), ("attention.value_length", U32, s.head))
    if s.experts:
        yield from (("expert_count", U32, s.experts), ("expert_used_count", U32, s.used),
                    ("expert_feed_forward_length", U32, s.expert_ffn))
        if s.arch != "deepseek2":
            yield "expert_shared_feed_forward_length", U32, s.shared_ffn
    more = {"qwen35": keys_of_delta, "qwen35moe": keys_of_delta, "gemma4": keys_of_gemma4, "deepseek2": keys_of_latent,
            "granitehybrid": keys_of_space}.get(s.arch)
    yield from more(s) if more else ()


def vocabulary(synth, path, size):
    """The vocabulary's keys, with tokens that nothing uses up to size."""
    pad = {"tokenizer.ggml.tokens": lambda i: b"<unused%d>" % i, "tokenizer.ggml.scores": lambda i: -1e4,
           "tokenizer.ggml.token_type": lambda i: 5}
    for k, (t, v) in synth.Reader(path).kv.items():
        if k.startswith("tokenizer."):
            yield k, t, (v[0], v[1] + [pad[k](i) for i in range(size - len(v[1]))]) if k in pad else v


def values(synth, kind, real, count, std, name):
    """The bytes of a tensor, or of the first REPEATED values of a larger one."""
    if kind == "part":  # frequencies: the first std are turned, the others are not
        return struct.pack("<f", 1.0) * std + struct.pack("<f", 1e30) * (count - std)
    plain = {"one": 1.0, "minus": -1.0}.get(kind)
    return struct.pack("<f", plain) * count if plain else synth.fill(random.Random(name), real, count, std)


def write(synth, path, kv, listed):
    """listed: (name, dims, kind, type, deviation)."""
    infos, at = [], 0
    for name, dims, kind, real, std in listed:
        count = math.prod(dims)
        size = count // synth.TYPES[real][1] * synth.TYPES[real][2]
        infos.append((name, dims, kind, real, count, size, at, std))
        at += (size + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(kv)) + b"".join(synth.kv_bytes(*x) for x in kv)
    for name, dims, _, real, _, _, offset, _ in infos:
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", synth.TYPES[real][0], offset)
    made = {}  # one repeated part of each kind of tensor
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for name, dims, kind, real, count, size, _, std in infos:
            key = kind, real, min(count, REPEATED), std
            if key not in made:
                made[key] = values(synth, kind, real, min(count, REPEATED), std, name)
            part, left = made[key], size
            while left:
                left -= f.write(part[:left])
            f.write(b"\0" * (-size % 32))
    print("%s: %d tensors, %.1f MB of weights" % (path, len(infos), at / 1e6))


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv.pop(1))
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    ap = argparse.ArgumentParser()
    ap.add_argument("--shape", required=True, choices=SHAPES)
    for o in ("--type", "--vocab", "--out"):
        ap.add_argument(o, required=True)
    ap.add_argument("--layers", type=int)
    a = ap.parse_args()
    s = Shape(a.shape, a.layers)
    cut = "-%dl" % s.layers if s.layers != SHAPES[a.shape]["layers"] else ""
    kv = [("general.architecture", TEXT, s.arch), ("general.name", TEXT, "synthetic " + a.shape + cut),
          ("general.file_type", U32, synth.FILE_TYPE[a.type])]
    kv += [(s.arch + "." + k, t, v) for k, t, v in keys(s)] + list(vocabulary(synth, a.vocab, s.vocab))
    have = {k for k, _, _ in kv}
    if s.arch == "nomic-bert" and "tokenizer.ggml.token_type_count" not in have:
        kv.append(("tokenizer.ggml.token_type_count", U32, 2))
    listed = []
    for name, dims, kind, std in tensors(s):
        real = "f32" if kind in ("one", "minus", "part") else kind or choose_type(synth, a.type, name, dims[0], s)
        listed.append((name, dims, kind or real, real, std))
    write(synth, a.out, kv, listed)


if __name__ == "__main__":
    main()
