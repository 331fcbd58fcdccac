"""Sessions: tokens in, logits out, for those who choose tokens themselves."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

from . import _abi
from ._library import call, lib, make

if TYPE_CHECKING:
    import numpy

    from .model import Model

KV_TYPES = {"f32": _abi.KV_F32, "f16": _abi.KV_F16, "q8_0": _abi.KV_Q8_0, "q5_0": _abi.KV_Q5_0,
            "iq4_nl": _abi.KV_IQ4_NL}


def fill_session(options: _abi.SessionOptions, *, context: int, threads: int, batch: int = 0,
                 kv_type: str = "f16", memory: int = 0,
                 progress: Optional[Callable[[str, float], Optional[bool]]] = None) -> Any:
    """Set options; returns what must stay alive as long as they are used."""
    if kv_type not in KV_TYPES:
        raise ValueError(f'kv_type is "{kv_type}", expected one of {", ".join(KV_TYPES)}')
    options.n_context, options.n_threads, options.n_batch = context, threads, batch
    options.kv_type, options.memory_bytes = KV_TYPES[kv_type], memory
    if progress is None:
        return None
    given = progress
    callback = _abi.ProgressFn(
        lambda _user, what, done: given(what.decode("utf-8", "replace"), done) is not False)
    options.on_progress = callback
    return callback


class Session:
    """Sequences of tokens and what was computed of them. One thread at a time may use it.

    progress(what, done) is called while weights are packed; returning False cancels.
    """

    def __init__(self, model: "Model", *, context: int = 0, sequences: int = 1, batch: int = 0,
                 outputs: int = 0, threads: int = 0, kv_type: str = "f16", memory: int = 0,
                 progress: Optional[Callable[[str, float], Optional[bool]]] = None) -> None:
        options = lib.lace_session_options_default()
        keep = fill_session(options, context=context, threads=threads, batch=batch, kv_type=kv_type,
                            memory=memory, progress=progress)
        options.n_sequences = sequences
        options.n_outputs = outputs or max(sequences, 1)
        self._n_outputs = options.n_outputs
        self._handle: Optional[ctypes.c_void_p] = make(lib.lace_session_create, model._open(),
                                                       ctypes.byref(options))
        del keep  # packing is over
        self._n_vocab = model.info.n_vocab
        model._adopt(self)

    def eval(self, tokens: Sequence[int], sequence: int = 0, all_logits: bool = False) -> "numpy.ndarray":
        """Append tokens to a sequence. Returns the logits of the next token, [n_vocab], or with
        all_logits those behind each token, [n, n_vocab]; the session needs that many outputs."""
        import numpy

        items = (_abi.Item * len(tokens))()
        for i, token in enumerate(tokens):
            items[i] = (int(token), sequence, all_logits or i + 1 == len(tokens))
        call(lib.lace_session_eval, self._use(), items, len(items))
        n = len(tokens) if all_logits else 1
        rows = numpy.empty((n, self._n_vocab), dtype=numpy.float32)
        for i in range(n):
            row = lib.lace_session_logits(self._use(), i)
            ctypes.memmove(rows[i].ctypes.data, row, rows[i].nbytes)
        return rows if all_logits else rows[0]

    def length(self, sequence: int = 0) -> int:
        return lib.lace_session_length(self._use(), sequence)

    def truncate(self, n_tokens: int, sequence: int = 0) -> None:
        """Keep the first n_tokens of a sequence."""
        call(lib.lace_session_truncate, self._use(), sequence, n_tokens)

    def fork(self, source: int, target: int) -> None:
        """Make the empty sequence `target` a copy of `source`."""
        call(lib.lace_session_fork, self._use(), source, target)

    def close(self) -> None:
        if self._handle is not None:
            lib.lace_session_free(self._handle)
            self._handle = None

    def _use(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the session is closed")
        return self._handle

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
