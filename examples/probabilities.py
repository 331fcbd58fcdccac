"""How sure a model is of each token that it writes, as a picture.

    probabilities.py MODEL.gguf "Once upon a time" [picture.svg]

Each bar is a token; its height is the probability that the model gave it. Below the text, the tokens
that it might have written instead. matplotlib draws it, if it is installed; else this prints a table.
"""
import math
import sys

import lace

# %% The text, with the five best tokens at each place.
path, start = sys.argv[1], sys.argv[2]
picture = sys.argv[3] if len(sys.argv) > 3 else None
model = lace.Model(path)
pieces = [p for p in model.stream(start, max_tokens=24, seed=4, logprobs=5) if p.token >= 0]


def name(token):
    return model.token_bytes(token).decode("utf-8", "replace")


# %% As a table.
for piece in pieces:
    others = ", ".join(f"{name(t)!r} {math.exp(x):.2f}" for t, x in piece.top.items() if t != piece.token)
    print(f"{math.exp(piece.logprob):5.2f}  {name(piece.token)!r:14}  instead of {others}")

# %% As a picture.
try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no picture")
    sys.exit()
heights = [math.exp(p.logprob) for p in pieces]
figure, axes = plt.subplots(figsize=(10, 3), layout="constrained")
axes.bar(range(len(pieces)), heights, color=plt.cm.viridis(heights))
axes.set_xticks(range(len(pieces)), [repr(name(p.token))[1:-1] for p in pieces], rotation=60, ha="right")
axes.set_ylabel("probability")
axes.set_title(f"{start} ...", loc="left")
if picture:
    figure.savefig(picture)
