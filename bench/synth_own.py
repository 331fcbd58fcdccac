#!/usr/bin/env python3
"""Models of real shapes with random weights of lace's own types.

    bench/synth_own.py SYNTH --shape llama3-8b --type s4 --vocab VOCAB --out FILE

SYNTH is a synth_gguf.py that knows the types of other programs; s3, s4, s8, n24, m4, m4_60 and m4_70 are
added to it here. In n24 and m4 the layers' matrices are sparse (docs/formats.md), the rest is as in q4_k.
In m4 half of the weights are zeros, anywhere, in the others 60 and 70 %, and the smallest levels do not
occur, as if pruned by size.
"""
import functools, importlib.util, math, random, struct, sys

S4 = [6, 18, 31, 44, 58, 75, 96, 127]
LEVELS = {"s3": [14, 45, 79, 127], "s4": S4, "s8": range(128), "n24": S4, "m4": S4[1:]}
OWN = {"s3": (1003, 128, 49), "s4": (1004, 128, 65), "s8": (1008, 128, 129), "n24": (24, 1, 1),
       "m4": (24, 1, 1), "m4_60": (24, 1, 1), "m4_70": (24, 1, 1)}
SPARSE = {"n24": 3, "m4": 1, "m4_60": 1, "m4_70": 1}  # numbers of their kinds
PAIRS = [3, 5, 9, 6, 10, 12]  # masks of 2 of 4 columns
# Of 256 weights, how many are left in the fuller half of a tile and in the other. Chance makes them differ.
LEFT = {"n24": (128, 128), "m4": (128, 128), "m4_60": (106, 98), "m4_70": (81, 73)}


def group_bytes(kind):
    """Of 16 rows and 128 columns."""
    return 16 + 4 * (64 + LEFT[kind][0])


def scale_of(kind, std):
    """A scale is a power of two here: 8 steps of it make a byte, from 2^-28 on."""
    kind = kind.partition("_")[0]
    rms = math.sqrt(sum(v * v for v in LEVELS[kind]) / len(LEVELS[kind]))
    return max(0, 8 * (28 + round(math.log2(std / rms))))


def n24_groups(rng, kind, scale):
    """Some blocks of 16 rows and 128 columns, to be repeated in any order."""
    groups = []
    for _ in range(64):
        group = bytes([scale]) * 16
        for _ in range(4):
            for _ in range(8):
                group += struct.pack("<Q", sum(rng.choice(PAIRS) << 4 * r for r in range(16)))
            group += rng.randbytes(128)
        groups.append(group)
    return groups


def m4_groups(rng, kind, scale):
    groups = []
    codes = [c for c in range(16) if c not in (7, 8)]
    for _ in range(64):
        group = bytes([scale]) * 16
        for _ in range(4):
            most, least = LEFT[kind]
            for left in most, least:  # halves of 4 masks
                mask = sum(1 << bit for bit in rng.sample(range(256), left))
                group += mask.to_bytes(32, "little")
            group += bytes(rng.choice(codes) | (rng.choice(codes) << 4 if i < least else 0) for i in range(most))
        groups.append(group)
    return groups


def sparse_bytes(kind, cols, rows):
    return 64 + 8 * (rows // 16 + 1) + rows // 16 * (cols // 128) * group_bytes(kind)


@functools.lru_cache(None)
def sparse_blob(kind, cols, rows, std):
    """The blob, in pieces; the same for all matrices of a shape, as it takes long to make."""
    return list(sparse_pieces(random.Random(cols + rows), kind, cols, rows, std))


def sparse_pieces(rng, kind, cols, rows, std):
    panels, across = rows // 16, cols // 128
    size = across * group_bytes(kind)
    left = rows * cols // 512 * sum(LEFT[kind])
    yield struct.pack("<4sIQQQQ24x", b"LSPR", SPARSE[kind], rows, cols, left, sparse_bytes(kind, cols, rows))
    yield b"".join(struct.pack("<Q", 8 * (panels + 1 - i) + i * size) for i in range(panels + 1))
    make = n24_groups if kind == "n24" else m4_groups
    groups = make(rng, kind, scale_of(kind, std * math.sqrt(512 / sum(LEFT[kind]))))
    for _ in range(panels):
        yield b"".join(rng.choices(groups, k=across))


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv[1])
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    synth.TYPES.update(OWN)
    synth.FILE_TYPE.update({name: kind[0] for name, kind in OWN.items()})
    plain, list_tensors = synth.fill, synth.tensors

    def fill(rng, kind, count, std):
        if kind not in OWN:
            return plain(rng, kind, count, std)
        if kind in SPARSE:  # a tensor comes in several calls
            if not hasattr(rng, "blob"):
                rng.blob, rng.rest = iter(sparse_blob(kind, *std)), b""
            pieces, size = [rng.rest], len(rng.rest)
            while size < count:
                pieces.append(next(rng.blob))
                size += len(pieces[-1])
            whole = b"".join(pieces)
            rng.rest = whole[count:]
            return whole[:count]
        size = OWN[kind][2]
        raw = bytearray(rng.randbytes(count // 128 * size))
        raw[0::size] = bytes([scale_of(kind, std)]) * (count // 128)
        return raw

    def tensors(shape, kind):
        for name, dims, t, std in list_tensors(shape, "q4_k" if kind in SPARSE else kind):
            if kind in SPARSE and t == "q4_k" and name.startswith("blk."):
                yield name + ".sparse", (sparse_bytes(kind, *dims),), kind, (*dims, std)
            else:
                yield name, dims, t, std

    synth.fill, synth.tensors = fill, tensors  # its own list asks the name `tensors` for --layers
    sys.argv = sys.argv[1:]
    synth.main()


main()
