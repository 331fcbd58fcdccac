"""Language models on this machine.

    import lace

    with lace.Model("model.gguf") as model:
        print(model.generate("Once upon a time", max_tokens=50))
        for piece in model.stream("Once upon a time"):
            print(piece.text, end="")
        print(model.chat([{"role": "user", "content": "Name three rivers."}]).content)
        vectors = model.embed(["a king", "a queen"])  # numpy, [2, n_embd]

lace.llama_cpp has the common calls of llama_cpp.Llama. docs/python.md explains all of it.
"""
from ._library import LaceError, devices, library_path, models, version
from .model import Grammar, Model, ModelInfo, Piece, Reply, Sampling, Stats
from .session import Session

__version__ = version()
__all__ = ["Grammar", "LaceError", "Model", "ModelInfo", "Piece", "Reply", "Sampling", "Session",
           "Stats", "devices", "library_path", "models", "version"]
