#!/usr/bin/env python3
"""Models of real shapes with random weights of lace's own types.

    bench/synth_own.py SYNTH --shape llama3-8b --type s4 --vocab VOCAB --out FILE

SYNTH is a synth_gguf.py that knows the types of other programs; s3, s4, s8 and n24 are added to it
here. In n24 the layers' matrices are sparse (docs/formats.md), the rest is as in q4_k.
"""
import importlib.util, math, random, struct, sys

S4 = [6, 18, 31, 44, 58, 75, 96, 127]
LEVELS = {"s3": [14, 45, 79, 127], "s4": S4, "s8": range(128), "n24": S4}
OWN = {"s3": (1003, 128, 49), "s4": (1004, 128, 65), "s8": (1008, 128, 129), "n24": (24, 1, 1)}
PAIRS = [3, 5, 9, 6, 10, 12]  # masks of 2 of 4 columns
GROUP_BYTES = 16 + 4 * (64 + 128)  # of 16 rows and 128 columns


def scale_of(kind, std):
    """A scale is a power of two here: 8 steps of it make a byte, from 2^-28 on."""
    rms = math.sqrt(sum(v * v for v in LEVELS[kind]) / len(LEVELS[kind]))
    return max(0, 8 * (28 + round(math.log2(std / rms))))


def n24_groups(rng, scale):
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


def n24_bytes(cols, rows):
    return 64 + 8 * (rows // 16 + 1) + rows // 16 * (cols // 128) * GROUP_BYTES


def n24_blob(rng, cols, rows, std):
    """The blob, in pieces."""
    panels, across = rows // 16, cols // 128
    size = across * GROUP_BYTES
    yield struct.pack("<4sIQQQQ24x", b"LSPR", 3, rows, cols, rows * cols // 2, n24_bytes(cols, rows))
    yield b"".join(struct.pack("<Q", 8 * (panels + 1 - i) + i * size) for i in range(panels + 1))
    groups = n24_groups(rng, scale_of("n24", std * math.sqrt(2)))
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
        if kind == "n24":  # a tensor comes in several calls
            if not hasattr(rng, "blob"):
                rng.blob, rng.rest = n24_blob(random.Random(rng.random()), *std), b""
            while len(rng.rest) < count:
                rng.rest += next(rng.blob)
            piece, rng.rest = rng.rest[:count], rng.rest[count:]
            return piece
        size = OWN[kind][2]
        raw = bytearray(rng.randbytes(count // 128 * size))
        raw[0::size] = bytes([scale_of(kind, std)]) * (count // 128)
        return raw

    def tensors(shape, kind):
        for name, dims, t, std in list_tensors(shape, "q4_k" if kind == "n24" else kind):
            if kind == "n24" and t == "q4_k" and name.startswith("blk."):
                yield name + ".sparse", (n24_bytes(*dims),), "n24", (*dims, std)
            else:
                yield name, dims, t, std

    synth.fill, synth.tensors = fill, tensors  # its own list asks the name `tensors` for --layers
    sys.argv = sys.argv[1:]
    synth.main()


main()
