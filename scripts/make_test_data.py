#!/usr/bin/env python3
"""Chooses tests/data from the full test data.

    scripts/make_test_data.py FOLDER

FOLDER holds golden/, golden2/, models/, vocab/, templates/, quant/ and text/, as tests/data/README.md
describes them. What is large is not copied but described: a recipe (NAME.recipe) makes a file out of
another one that is here already, a shortened vocabulary (NAME.tokens.json) lists the tokens that its
reference texts can meet. scripts/expand-test-data.pl makes the files again.
"""
import hashlib
import json
import os
import shutil
import struct
import sys

GOLDEN = ["gemma2", "gpt-oss", "granite", "llama", "llama3-rope", "olmo2", "phi4-partial", "qwen2",
          "qwen3", "qwen3moe", "smollm3"]
ENCODERS = ["modernbert", "xlm_roberta-rerank"]
VISION = ["gemma3-vision", "qwen3_vl"]
GOLDEN_TOKENS_OF_TALES = 32
TEXT_BYTES = 128 << 10

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "tests/data")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(relative, data):
    path = os.path.join(OUT, relative)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# ---- Recipes -------------------------------------------------------------------------------------

BLOCK = 32  # bytes of the source that are looked for


def find_copies(source, target, unit):
    """The target as [offset, size, stride, count] of the source and as literal bytes."""
    blocks = {}
    for at in range(len(source) - BLOCK, -1, -unit * 8):
        blocks[source[at:at + BLOCK]] = at
    values = {}
    for at in range(0, len(source) - unit + 1, unit):
        values.setdefault(source[at:at + unit], []).append(at)
    parts, literal, at = [], bytearray(), 0

    def end_literal():
        if literal:
            parts.append(bytes(literal))
            literal.clear()

    while at < len(target):
        begin = blocks.get(target[at:at + BLOCK], -1)
        if begin >= 0:
            n = BLOCK
            while at + n < len(target) and begin + n < len(source) and \
                    target[at + n] == source[begin + n]:
                n += 1
            n -= n % unit if at + n < len(target) else 0
            end_literal()
            parts.append([begin, n, 0, 1])
            at += n
            continue
        best = find_column(source, target, at, unit, values) if unit == 4 else None
        if best:
            end_literal()
            parts.append(best)
            at += unit * best[3]
        else:
            literal += target[at:at + unit]
            at += unit
    end_literal()
    return parts


def find_column(source, target, at, unit, values):
    """Values that lie at equal distances in the source: a row of a transposed matrix."""
    second = target[at + unit:at + 2 * unit]
    for first in values.get(target[at:at + unit], [])[:4]:
        for then in values.get(second, [])[:4]:
            stride, n = then - first, 2
            while 0 < stride and first + n * stride + unit <= len(source) and \
                    source[first + n * stride:first + n * stride + unit] == \
                    target[at + n * unit:at + (n + 1) * unit] and at + n * unit < len(target):
                n += 1
            if n >= 16:
                return [first, unit, stride, n]
    return None


def recipe(target_path, source_path, source_name, unit):
    source, target = read(source_path), read(target_path)
    # Columns end with their matrix: one that runs on by chance into the next would be cut there.
    lines = ["from " + source_name]
    runs = []  # [part, outer stride, outer count]
    for part in find_copies(source, target, unit):
        last = runs[-1] if runs else None
        if last and not isinstance(part, bytes) and not isinstance(last[0], bytes) and \
                part[1:] == last[0][1:] and part[3] > 1 and \
                (last[2] == 1 or part[0] == last[0][0] + last[1] * last[2]):
            last[1] = part[0] - last[0][0] if last[2] == 1 else last[1]
            last[2] += 1
        else:
            runs.append([part, 0, 1])
    for part, stride, count in runs:
        if isinstance(part, bytes):
            lines += ["hex " + part[i:i + 48].hex() for i in range(0, len(part), 48)]
        elif part[3] == 1:
            lines.append("take %d %d" % (part[0], part[1]))
        else:
            lines.append("take %d %d %d %d %d %d" % (*part, stride, count))
    lines.append("sha256 " + hashlib.sha256(target).hexdigest())
    return "\n".join(lines) + "\n"


# ---- Vocabularies --------------------------------------------------------------------------------

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


def gguf_values(data):
    """Keys with their types and values, in order: (key, type, of, value)."""
    at = 24
    count = struct.unpack_from("<Q", data, 16)[0]

    def take(kind):
        nonlocal at
        if kind == 8:
            n = struct.unpack_from("<Q", data, at)[0]
            at += 8 + n
            return data[at - n:at]
        value = struct.unpack_from("<" + SCALARS[kind], data, at)[0]
        at += struct.calcsize("<" + SCALARS[kind])
        return value

    for _ in range(count):
        key, kind, of = take(8).decode(), take(4), None
        if kind == 9:
            of, n = take(4), take(10)
            yield key, kind, of, [take(of) for _ in range(n)]
        else:
            yield key, kind, of, take(kind)


def byte_chars():
    """GPT-2's printable character of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + n)
            n += 1
    return table


def shorten(name, folder):
    values = list(gguf_values(read(os.path.join(folder, name + ".gguf"))))
    by_key = {v[0]: v[3] for v in values}
    model = by_key["tokenizer.ggml.model"].decode()
    tokens = [t.decode("utf-8", "surrogateescape") for t in by_key["tokenizer.ggml.tokens"]]
    types = by_key["tokenizer.ggml.token_type"]
    words = set()
    inputs = os.path.join(folder, name + ".inp")
    source = read(inputs) if os.path.exists(inputs) else read(os.path.join(folder, "gpt-2.inp"))
    text = source.decode() + " Hello <|im_end|> user system Obey Hi "
    if model == "gpt2":
        table = byte_chars()
        text = "".join(table[b] for b in text.encode())
    elif model == "bert":
        text = "\u2581" + text.lower().replace(" ", "\u2581").replace("\n", "\u2581")
    else:
        text = "\u2581" + text.replace(" ", "\u2581")
    for i in range(len(text)):
        for n in range(1, 33):
            words.add(text[i:i + n])
    outputs = os.path.join(folder, name + ".out")
    used = {int(i) for i in read(outputs).split()} if os.path.exists(outputs) else set()
    special = {v for k, v in by_key.items() if k.endswith("_token_id")}
    keep = [i for i, t in enumerate(tokens)
            if types[i] != 1 or i in used or i in special or t in words or len(t) == 1 and
            model == "gpt2"]
    # Tokens that many models reserve and none uses.
    keep = [i for i in keep if types[i] != 5]
    kept = {tokens[i] for i in keep}
    scores = by_key.get("tokenizer.ggml.scores")
    merges = [m.decode() for m in by_key.get("tokenizer.ggml.merges", [])]
    merges = [m for m in merges if set(m.split(" ")) | {m.replace(" ", "")} <= kept]
    plain = [[k, kind, v.decode() if kind == 8 else v] for k, kind, of, v in values if kind != 9]
    arrays = [k for k, kind, of, v in values if kind == 9]
    expected = {"tokens", "token_type", "scores", "merges"}
    if {k.split(".")[-1] for k in arrays} - expected:
        raise SystemExit("%s: arrays %s" % (name, arrays))
    rows = ",\n".join(json.dumps([i, tokens[i], types[i]] + ([scores[i]] if scores else []),
                                 ensure_ascii=False) for i in keep)
    return '{"values": %s,\n"n_tokens": %d,\n"tokens": [\n%s],\n"merges": %s}\n' % (
        json.dumps(plain, ensure_ascii=False), len(tokens), rows,
        json.dumps(merges, ensure_ascii=False, indent=0))


# ---- The rest ------------------------------------------------------------------------------------

def first_tokens(data, n):
    """A golden file with its first n tokens, their logits and nothing after them."""
    size = struct.unpack_from("<Q", data)[0]
    header, begin = json.loads(data[8:8 + size]), 8 + size
    parts, out, at = [], {}, 0
    for name in ("tokens", "logits"):
        entry = header[name]
        row = 4 * (entry["shape"][1] if len(entry["shape"]) > 1 else 1)
        first = begin + entry["data_offsets"][0]
        parts.append(data[first:first + n * row])
        out[name] = {"dtype": entry["dtype"], "shape": [n] + entry["shape"][1:],
                     "data_offsets": [at, at + n * row]}
        at += n * row
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def copy(folder, relative):
    write(relative, read(os.path.join(folder, relative)))


def main(folder):
    for name in os.listdir(OUT):
        if os.path.isdir(os.path.join(OUT, name)):
            shutil.rmtree(os.path.join(OUT, name))
    for here in (["golden/%s/" % name for name in GOLDEN] +
                 ["golden2/%s/" % name for name in ENCODERS + VISION]):
        for file in ("config.json", "model.safetensors", "golden.safetensors", "modules.json",
                     "1_Pooling/config.json", "preprocessor_config.json"):
            if os.path.exists(os.path.join(folder, here + file)):
                copy(folder, here + file)
        for file in ("model.gguf", "mmproj.gguf"):
            if os.path.exists(os.path.join(folder, here + file)):
                write(here + file + ".recipe",
                      recipe(os.path.join(folder, here + file),
                             os.path.join(folder, here + "model.safetensors"),
                             "tests/data/" + here + "model.safetensors", 4))
    tales = "models/tales-4m/"
    for file in ("config.json", "generation_config.json", "reference.json", "tokenizer.json",
                 "tokenizer_config.json"):
        copy(folder, tales + file)
    write(tales + "golden.safetensors",
          first_tokens(read(os.path.join(folder, tales, "golden.safetensors")),
                       GOLDEN_TOKENS_OF_TALES))
    ours = os.path.join(ROOT, "models/tales-4m.gguf")
    write(tales + "model.safetensors.recipe",
          recipe(os.path.join(folder, tales, "model.safetensors"), ours, "models/tales-4m.gguf", 2))
    write("models/tales-4m-f16.gguf.recipe",
          recipe(os.path.join(folder, "models/tales-4m-f16.gguf"), ours, "models/tales-4m.gguf", 2))
    vocabularies = os.path.join(folder, "vocab")
    for file in sorted(os.listdir(vocabularies)):
        if file.endswith(".gguf"):
            write("vocab/%s.tokens.json" % file[:-5], shorten(file[:-5], vocabularies))
        else:
            copy(folder, "vocab/" + file)
    for part in ("templates", "quant"):
        for file in sorted(os.listdir(os.path.join(folder, part))):
            if os.path.isfile(os.path.join(folder, part, file)):
                copy(folder, part + "/" + file)
    for file in ("test.txt", "calib.txt"):
        data = read(os.path.join(folder, "text", file))
        write("text/" + file, data[:data.index(b"\n", TEXT_BYTES) + 1])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
