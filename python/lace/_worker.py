"""One thread that owns a batcher: whoever wants a text hands it a job and gets pieces back.

ctypes lets other threads run while the library computes, and the texts of all callers are computed
together.
"""
from __future__ import annotations

import collections
import ctypes
import threading
from typing import Any, Callable, Deque, List, Optional, Tuple

from . import _abi
from ._library import LaceError, call, lib, make

# A piece as it comes: token, text, logprob, top, finish, stop, stats, error.
RawPiece = Tuple[int, bytes, float, List[Tuple[int, float]], int, Optional[str], Any,
                 Optional[Exception]]


class Job:
    """A generation: its options, and who gets its pieces. The last one has a finish or an error."""

    def __init__(self, options: _abi.GenerationOptions, keep: Any,
                 give: Callable[[RawPiece], None]) -> None:
        self.options, self.keep, self.give = options, keep, give
        self.handle: Optional[ctypes.c_void_p] = None
        self.is_over = self.is_cancelled = False
        self.callback = _abi.PieceFn(self._on_piece)
        options.on_piece = self.callback

    def _on_piece(self, _user: Any, pointer: Any) -> None:
        piece = pointer.contents
        self.is_over = piece.finish != _abi.FINISH_NONE
        error = None
        if piece.error:
            failed = piece.error.contents
            error = LaceError(failed.status, failed.text.decode("utf-8", "replace"))
        stats = piece.stats.contents if piece.stats else None
        self.give((piece.token, ctypes.string_at(piece.text, piece.n_bytes) if piece.n_bytes else b"",
                   piece.logprob, [(t.token, t.logprob) for t in piece.top[:piece.n_top]],
                   piece.finish, piece.stop.decode() if piece.stop else None,
                   {name: getattr(stats, name) for name, _ in stats._fields_} if stats else {},
                   error))

    def fail(self, error: Exception) -> None:
        self.is_over = True
        self.give((-1, b"", float("nan"), [], _abi.FINISH_ERROR, None, {}, error))


class Worker:
    """The thread. `close` ends what is under way and waits for it."""

    def __init__(self, model: ctypes.c_void_p, options: _abi.BatcherOptions) -> None:
        self._batcher = make(lib.lace_batcher_create, model, ctypes.byref(options))
        self._new: Deque[Job] = collections.deque()
        self._running: List[Job] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="lace", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        with self._changed:
            if self._is_closing:
                raise LaceError(_abi_status("E_CANCELLED"), "the model is closed")
            self._new.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        job.is_cancelled = True
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _start(self, job: Job) -> None:
        handle = ctypes.c_void_p()
        try:
            call(lib.lace_batcher_add, self._batcher, ctypes.byref(job.options), ctypes.byref(handle))
        except LaceError as e:
            job.fail(e)
            return
        job.handle = handle
        self._running.append(job)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._new or self._running or self._is_closing):
                    self._changed.wait()
                new, is_closing = list(self._new), self._is_closing
                self._new.clear()
            for job in new:
                self._start(job)
            for job in self._running:
                if (is_closing or job.is_cancelled) and not job.is_over:
                    lib.lace_batcher_cancel(self._batcher, job.handle)
            self._running = [job for job in self._running if not job.is_over]
            if is_closing:
                break
            lib.lace_batcher_step(self._batcher)
            self._running = [job for job in self._running if not job.is_over]
        lib.lace_batcher_free(self._batcher)


def _abi_status(name: str) -> int:
    return next(value for value, (known, _) in _abi.STATUSES.items() if known == name)
