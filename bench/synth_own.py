#!/usr/bin/env python3
"""Models of real shapes with random weights of lace's own types.

    bench/synth_own.py SYNTH --shape llama3-8b --type s4 --vocab VOCAB --out FILE

SYNTH is a synth_gguf.py that knows the types of other programs; s3, s4 and s8 are added to it here.
"""
import importlib.util, math, sys

LEVELS = {"s3": [14, 45, 79, 127], "s4": [6, 18, 31, 44, 58, 75, 96, 127], "s8": range(128)}
OWN = {"s3": (1003, 128, 49), "s4": (1004, 128, 65), "s8": (1008, 128, 129)}


def main():
    spec = importlib.util.spec_from_file_location("synth", sys.argv[1])
    synth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synth)
    synth.TYPES.update(OWN)
    synth.FILE_TYPE.update({name: kind[0] for name, kind in OWN.items()})
    plain = synth.fill

    def fill(rng, kind, count, std):
        if kind not in OWN:
            return plain(rng, kind, count, std)
        size = OWN[kind][2]
        raw = bytearray(rng.randbytes(count // 128 * size))
        rms = math.sqrt(sum(v * v for v in LEVELS[kind]) / len(LEVELS[kind]))
        # A scale is a power of two here: 8 steps of it make a byte, from 2^-28 on.
        raw[0::size] = bytes([max(0, 8 * (28 + round(math.log2(std / rms))))]) * (count // 128)
        return raw

    synth.fill = fill
    sys.argv = sys.argv[1:]
    synth.main()


main()
