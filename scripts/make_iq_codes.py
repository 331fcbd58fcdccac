#!/usr/bin/env python3
"""Writes src/tensor/iq_codes.h from tables of the points that the IQ types use.

    scripts/make_iq_codes.py FOLDER > src/tensor/iq_codes.h

FOLDER holds one TSV file per grid, a line per point, a column per value. A value becomes its place in
the grid's list of values (2 or 3 bits), and a point the number made of these, first value lowest.
"""
import sys
from pathlib import Path

# file, name, the values in order, bits for each
GRIDS = [
    ("iq2_xxs", "IQ2_XXS_CODES", [8, 25, 43], 2),
    ("iq2_xs", "IQ2_XS_CODES", [8, 25, 43], 2),
    ("iq2_s", "IQ2_S_CODES", [8, 25, 43], 2),
    ("iq1", "IQ1_CODES", [-1, 0, 1], 2),
    ("iq3_xxs", "IQ3_XXS_CODES", [4, 12, 20, 28, 36, 44, 52, 62], 3),
    ("iq3_s", "IQ3_S_CODES", [1, 3, 5, 7, 9, 11, 13, 15], 3),
]
VALUES = [("iq4_nl", "IQ4_VALUES"), ("mxfp4", "FP4_VALUES")]

HEAD = """\
/*
 * The points of the IQ types' grids as short codes, made by scripts/make_iq_codes.py.
 *
 * NAME(P) is P(code) for every point in order; a code has 2 bits (iq1, iq2) or 3 bits (iq3) a
 * value, the first lowest. iq_grids.h has the macros to pass as P.
 */
#ifndef LACE_TENSOR_IQ_CODES_H
#define LACE_TENSOR_IQ_CODES_H

/* clang-format off */"""


def rows(folder, name):
    text = (folder / f"{name}.tsv").read_text()
    return [[int(v) for v in line.split("\t")] for line in text.splitlines()]


def main():
    folder = Path(sys.argv[1])
    print(HEAD)
    for file, name, values, bits in GRIDS:
        words = []
        for point in rows(folder, file):
            code = sum(values.index(v) << bits * i for i, v in enumerate(point))
            words.append(f"P({code})")
        print(f"#define {name}(P) \\")
        line = "   "
        for i, word in enumerate(words):
            if len(line) + len(word) > 96:
                print(line, "\\")
                line = "   "
            line += " " + word
        print(line + "\n")
    for file, name in VALUES:
        print(f"#define {name} " + ", ".join(str(v) for v in rows(folder, file)[0]))
    print("/* clang-format on */\n\n#endif")


main()
