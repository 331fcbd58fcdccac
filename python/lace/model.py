"""Models: text, chat, vectors and grammars."""
from __future__ import annotations

import asyncio
import ctypes
import json
import queue
import threading
import weakref
from dataclasses import dataclass, field
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional,
                    Sequence, Union)

from . import _abi
from ._library import call, lib, make, tokens_array
from ._worker import Job, RawPiece, Worker
from .session import Session, fill_session

if TYPE_CHECKING:
    import numpy

FINISHES = {_abi.FINISH_STOP: "stop", _abi.FINISH_LENGTH: "length",
            _abi.FINISH_CANCELLED: "cancelled"}
GRAMMAR_KINDS = {"gbnf": _abi.GRAMMAR_GBNF, "json_schema": _abi.GRAMMAR_JSON_SCHEMA,
                 "regex": _abi.GRAMMAR_REGEX, "json": _abi.GRAMMAR_JSON_OBJECT}
Prompt = Union[str, Sequence[int]]
Progress = Callable[[str, float], Optional[bool]]


@dataclass(frozen=True)
class ModelInfo:
    """What a model is; the same names as lace_model_info in lace.h."""

    name: str
    architecture: str
    type: str
    tokenizer: str
    chat_template: str
    device: str
    backend: str
    n_parameters: int
    weight_bytes: int
    n_layers: int
    n_embd: int
    n_heads: int
    n_vocab: int
    n_context: int
    bos: int
    eos: int
    is_encoder: bool
    n_classes: int


@dataclass
class Sampling:
    """How tokens are chosen; the same names and defaults as lace_sampler_options in lace.h."""

    seed: Optional[int] = None
    temperature: Optional[float] = None
    top_k: Optional[int] = None
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    typical_p: Optional[float] = None
    repeat_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    mirostat: Optional[int] = None
    mirostat_tau: Optional[float] = None
    mirostat_eta: Optional[float] = None

    def fill(self, options: _abi.SamplerOptions) -> None:
        for name, value in vars(self).items():
            if value is not None:
                setattr(options, name, value)


@dataclass(frozen=True)
class Stats:
    """Counts and times of a generation; the same names as lace_generation_stats in lace.h."""

    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    prompt_ns: int = 0
    generate_ns: int = 0


@dataclass(frozen=True)
class Piece:
    """What one step brought. `finish` is "stop", "length" or "cancelled" in the last piece."""

    text: str
    token: int
    logprob: float = float("nan")
    top: Dict[int, float] = field(default_factory=dict)
    finish: Optional[str] = None
    stop: Optional[str] = None
    stats: Stats = Stats()


@dataclass
class Reply:
    """A reply of chat(). `message` is the assistant's, to be appended to the messages."""

    content: str
    reasoning: str
    tool_calls: List[Dict[str, Any]]
    message: Dict[str, Any]
    finish: str
    stats: Stats


class Grammar:
    """A form that a text must have: GBNF, a JSON schema, a regex, or any JSON object."""

    def __init__(self, model: "Model", source: Union[str, Mapping[str, Any]], kind: str = "gbnf") -> None:
        if kind not in GRAMMAR_KINDS:
            raise ValueError(f'kind is "{kind}", expected one of {", ".join(GRAMMAR_KINDS)}')
        text = (source if isinstance(source, str) else json.dumps(source)).encode()
        self._handle: Optional[ctypes.c_void_p] = make(
            lib.lace_grammar_create, model._open(), GRAMMAR_KINDS[kind], text, len(text))
        model._adopt(self)

    def close(self) -> None:
        if self._handle is not None:
            lib.lace_grammar_free(self._handle)
            self._handle = None


class Model:
    """A model on a device: a GGUF file, a Hugging Face directory, or a name that `lace list` shows.

    progress(what, done) is called while weights are packed, with done from 0 to 1; returning False
    cancels. Any number of threads may use a model; their texts are computed together.
    """

    def __init__(self, path: str, *, device: str = "auto", context: int = 0, threads: int = 0,
                 batch: int = 0, parallel: int = 8, kv_type: str = "f16", memory: int = 0,
                 mmap: bool = False, fast_prompts: bool = False, vocab_only: bool = False,
                 chat_template: Optional[str] = None, progress: Optional[Progress] = None) -> None:
        options = lib.lace_model_options_default()
        options.use_mmap, options.vocab_only, options.device = mmap, vocab_only, device.encode()
        options.fast_prompts = fast_prompts
        self._handle: Optional[ctypes.c_void_p] = make(lib.lace_model_open, str(path).encode(),
                                                       ctypes.byref(options))
        self._lock = threading.Lock()
        self._made: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._worker: Optional[Worker] = None
        self._chat: Optional[ctypes.c_void_p] = None
        self._embedder: Optional[ctypes.c_void_p] = None
        self._embed_lock = threading.Lock()
        self._template = chat_template.encode() if chat_template is not None else None
        self._session = dict(context=context, threads=threads, batch=batch, kv_type=kv_type,
                             memory=memory, progress=progress)
        fill_session(lib.lace_session_options_default(), **self._session)  # a mistake is said now
        self._parallel = parallel
        self.info = self._describe()

    # ---- Life

    def close(self) -> None:
        """End what is under way, and free everything that was made of this model."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        if self._worker:
            self._worker.close()
        for made in list(self._made):
            made.close()
        lib.lace_embedder_free(self._embedder)
        lib.lace_chat_free(self._chat)
        lib.lace_model_close(handle)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<lace.Model {self.info.name or self.info.architecture} on {self.info.device}>"

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the model is closed")
        return self._handle

    def _adopt(self, made: Any) -> None:
        made._model = self  # a model lives as long as what was made of it
        self._made.add(made)

    def _describe(self) -> ModelInfo:
        raw = _abi.ModelInfo()
        lib.lace_model_describe(self._open(), ctypes.byref(raw))
        values = {}
        for name in ModelInfo.__dataclass_fields__:
            value = getattr(raw, name)
            values[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return ModelInfo(**values)

    # ---- Tokens

    def tokenize(self, text: str, special: bool = True, parse_special: bool = False) -> List[int]:
        """Text to tokens. special: BOS and EOS where the model wants them. parse_special: "<s>" in
        the text is the token."""
        data = text.encode()
        flags = (_abi.TOKENIZE_ADD_SPECIAL * special) | (_abi.TOKENIZE_PARSE_SPECIAL * parse_special)
        tokens = (ctypes.c_int32 * (len(data) + 4))()
        n = ctypes.c_size_t()
        call(lib.lace_tokenize, self._open(), data, len(data), flags, tokens, len(tokens),
             ctypes.byref(n))
        return list(tokens[:n.value])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Tokens to text; half a character at the end is U+FFFD."""
        decoder = make(lib.lace_decoder_create, self._open())
        text, n, parts = ctypes.c_void_p(), ctypes.c_size_t(), []
        try:
            for token in tokens:
                call(lib.lace_decoder_push, decoder, int(token), ctypes.byref(text), ctypes.byref(n))
                parts.append(ctypes.string_at(text, n.value) if n.value else b"")
            call(lib.lace_decoder_flush, decoder, ctypes.byref(text), ctypes.byref(n))
            parts.append(ctypes.string_at(text, n.value) if n.value else b"")
        finally:
            lib.lace_decoder_free(decoder)
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for; it need not be whole characters."""
        n = ctypes.c_size_t()
        data = lib.lace_token_bytes(self._open(), token, ctypes.byref(n))
        return ctypes.string_at(data, n.value) if n.value else b""

    def is_end(self, token: int) -> bool:
        return lib.lace_token_is_end(self._open(), token)

    # ---- Text

    def session(self, **options: Any) -> Session:
        """A session; see Session."""
        return Session(self, **options)

    def grammar(self, source: Union[str, Mapping[str, Any]], kind: str = "gbnf") -> Grammar:
        """A grammar; see Grammar. The model keeps those that were used last."""
        return Grammar(self, source, kind)

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Piece]:
        """Pieces of a text as they come. Leaving the loop ends the generation. See generate()."""
        pieces: "queue.SimpleQueue[RawPiece]" = queue.SimpleQueue()
        job = self._make_job(prompt, pieces.put, **options)
        worker = self._get_worker()
        worker.add(job)
        try:
            while True:
                piece = _piece_of(pieces.get())
                yield piece
                if piece.finish:
                    return
        finally:
            if not job.is_over:
                worker.cancel(job)

    async def astream(self, prompt: Prompt, **options: Any) -> AsyncIterator[Piece]:
        """The same for asyncio: the loop runs while the model computes."""
        loop = asyncio.get_running_loop()
        pieces: "asyncio.Queue[RawPiece]" = asyncio.Queue()
        job = self._make_job(prompt, lambda p: loop.call_soon_threadsafe(pieces.put_nowait, p),
                             **options)
        worker = await loop.run_in_executor(None, self._get_worker)
        worker.add(job)
        try:
            while True:
                piece = _piece_of(await pieces.get())
                yield piece
                if piece.finish:
                    return
        finally:
            if not job.is_over:
                worker.cancel(job)

    def generate(self, prompt: Prompt, **options: Any) -> str:
        """Continue a text or a list of tokens. Options:

        max_tokens: -1 (default): as many as fit. stop: a text, or several, before which it ends.
        grammar: a Grammar, GBNF, or a JSON schema as a dict. logprobs: n best tokens in Piece.top.
        bias: token to what is added to its logit. ignore_end, show_special: as in lace.h.
        sampling: a Sampling; or its fields by name: temperature=0, seed=1, top_p=0.9 ...
        """
        return "".join(piece.text for piece in self.stream(prompt, **options))

    async def agenerate(self, prompt: Prompt, **options: Any) -> str:
        """The same for asyncio."""
        return "".join([piece.text async for piece in self.astream(prompt, **options)])

    # ---- Chat

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], *,
                    tools: Optional[Sequence[Mapping[str, Any]]] = None,
                    variables: Optional[Mapping[str, Any]] = None) -> str:
        """The prompt that the model's chat template makes of messages."""
        prompt = self._make_prompt(messages, tools, variables)
        try:
            made = prompt.contents
            return ctypes.string_at(made.text, made.n_bytes).decode()
        finally:
            lib.lace_prompt_free(prompt)

    def chat(self, messages: Sequence[Mapping[str, Any]], *,
             tools: Optional[Sequence[Mapping[str, Any]]] = None,
             variables: Optional[Mapping[str, Any]] = None, require_call: Union[bool, str] = False,
             on_text: Optional[Callable[[str], Any]] = None, **options: Any) -> Reply:
        """Answer messages in OpenAI's form. on_text is called with each piece of the content;
        require_call=True, or the name of a tool, demands a call. Options are those of generate()."""
        prompt = self._make_prompt(messages, tools, variables)
        grammar, reply = ctypes.c_void_p(), None

        def on_event(_user: Any, event: Any) -> None:
            e = event.contents
            if on_text and e.kind == _abi.REPLY_CONTENT:
                on_text(ctypes.string_at(e.text, e.n_bytes).decode("utf-8", "replace"))

        callback = _abi.ReplyFn(on_event)
        try:
            if require_call:
                name = require_call.encode() if isinstance(require_call, str) else None
                call(lib.lace_chat_call_grammar, self._chat, prompt, name, ctypes.byref(grammar))
                options["grammar"] = grammar
            reply = make(lib.lace_reply_create, self._chat, prompt, callback, None)
            last = Piece("", -1)
            tokens = prompt.contents.tokens[:prompt.contents.n_tokens]
            for last in self.stream(tokens, **options):
                data = last.text.encode()
                call(lib.lace_reply_push, reply, data, len(data))
            text = ctypes.c_char_p()
            call(lib.lace_reply_finish, reply, ctypes.byref(text))
            message = json.loads(text.value or b"{}")
        finally:
            lib.lace_reply_free(reply)
            lib.lace_grammar_free(grammar)
            lib.lace_prompt_free(prompt)
        return Reply(message["content"], message.get("reasoning_content", ""),
                     message.get("tool_calls", []), message, last.finish or "", last.stats)

    async def achat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        """chat() for asyncio; on_text is called on another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: self.chat(messages, **options))

    # ---- Vectors

    def embed(self, texts: Union[str, Sequence[str]], normalize: bool = True) -> "numpy.ndarray":
        """Texts to vectors, [n, n_embd], or of one text [n_embd]; with normalize of length 1."""
        import numpy

        many = [texts] if isinstance(texts, str) else list(texts)
        vectors = numpy.zeros((len(many), self.info.n_embd), dtype=numpy.float32)
        wanted, keep = (_abi.EmbedText * len(many))(), []
        for i, text in enumerate(many):
            tokens = tokens_array(self.tokenize(text))
            keep.append(tokens)
            wanted[i].tokens, wanted[i].n_tokens = tokens, len(tokens)
            wanted[i].normalize = normalize
            wanted[i].out = vectors[i].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        with self._embed_lock:
            call(lib.lace_embedder_run, self._get_embedder(), wanted, len(many))
        return vectors[0] if isinstance(texts, str) else vectors

    def score(self, query: str, texts: Sequence[str]) -> "numpy.ndarray":
        """How well each text answers a query, by a reranker, [n]."""
        import numpy

        scores = numpy.zeros(len(texts), dtype=numpy.float32)
        asked = query.encode()
        with self._embed_lock:
            for i, text in enumerate(texts):
                data, score = text.encode(), ctypes.c_float()
                call(lib.lace_embedder_score, self._get_embedder(), asked, len(asked), data,
                     len(data), ctypes.byref(score))
                scores[i] = score.value
        return scores

    # ---- Inside

    def _get_embedder(self) -> ctypes.c_void_p:
        model = self._open()
        if self._embedder is None:
            self._embedder = make(lib.lace_embedder_create, model, None)
        return self._embedder

    def _get_worker(self) -> Worker:
        with self._lock:
            model = self._open()
            if self._worker is None:
                options = lib.lace_batcher_options_default()
                keep = fill_session(options.session, **self._session)
                options.session.n_sequences = self._parallel
                self._worker = Worker(model, options)
                del keep  # packing is over
            return self._worker

    def _make_prompt(self, messages: Any, tools: Any, variables: Any) -> Any:
        with self._lock:
            model = self._open()
            if self._chat is None:
                self._chat = make(lib.lace_chat_create, model, self._template)
        request = lib.lace_chat_request_default()
        request.messages_json = json.dumps(list(messages)).encode()
        request.tools_json = json.dumps(list(tools)).encode() if tools else None
        request.variables_json = json.dumps(dict(variables)).encode() if variables else None
        prompt = ctypes.POINTER(_abi.Prompt)()
        call(lib.lace_chat_prompt, self._chat, ctypes.byref(request), ctypes.byref(prompt))
        return prompt

    def _make_job(self, prompt: Prompt, give: Callable[[RawPiece], None], *, max_tokens: int = -1,
                  stop: Union[str, Sequence[str]] = (), grammar: Any = None, logprobs: int = -1,
                  bias: Optional[Mapping[int, float]] = None, ignore_end: bool = False,
                  show_special: bool = False, sampling: Optional[Sampling] = None,
                  **fields: Any) -> Job:
        options = lib.lace_generation_options_default()
        tokens = tokens_array(self.tokenize(prompt) if isinstance(prompt, str) else prompt)
        stops = [s.encode() for s in ([stop] if isinstance(stop, str) else stop)]
        stop_array = (ctypes.c_char_p * len(stops))(*stops)
        biases = (_abi.Bias * len(bias or ()))(*(bias or {}).items())
        options.prompt, options.n_prompt = tokens, len(tokens)
        options.max_tokens, options.n_top = max_tokens, logprobs
        options.ignore_end, options.show_special = ignore_end, show_special
        options.stops, options.n_stops = stop_array, len(stops)
        options.biases, options.n_biases = biases, len(biases)
        for one in filter(None, (sampling, Sampling(**fields))):
            one.fill(options.sampler)
        if isinstance(grammar, Mapping):
            grammar = Grammar(self, grammar, "json_schema")
        elif isinstance(grammar, str):
            grammar = Grammar(self, grammar)
        options.grammar = getattr(grammar, "_handle", grammar)
        return Job(options, (tokens, stops, stop_array, biases, grammar), give)


def _piece_of(raw: RawPiece) -> Piece:
    token, text, logprob, top, finish, stop, stats, error = raw
    if error is not None:
        raise error
    known = {name: stats[name] for name in Stats.__dataclass_fields__ if name in stats}
    return Piece(text.decode("utf-8", "replace"), token, logprob, dict(top), FINISHES.get(finish),
                 stop, Stats(**known))
