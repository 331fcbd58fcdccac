"""The common calls of llama_cpp.Llama, so that a script changes one line:

    from lace.llama_cpp import Llama

    llm = Llama("model.gguf", n_ctx=2048)
    llm("Q: Name the planets. A:", max_tokens=32, stop=["Q:"])["choices"][0]["text"]
    llm.create_chat_completion(messages=[{"role": "user", "content": "Hello"}])

What lace has no answer to is an error that names it, not something that is ignored; settings that only
say how llama.cpp computes (n_batch of its kernels, use_mlock, flash_attn, verbose) change nothing.
"""
from __future__ import annotations

import time
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from .model import Model, Piece

_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
             "typical_p": "typical_p", "repeat_penalty": "repeat_penalty", "seed": "seed",
             "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
             "mirostat_mode": "mirostat", "mirostat_tau": "mirostat_tau",
             "mirostat_eta": "mirostat_eta"}
_HARMLESS = {"verbose", "use_mlock", "flash_attn", "n_ubatch", "n_threads_batch", "offload_kqv",
             "embedding", "logits_all", "model", "user", "numa"}


class LlamaGrammar:
    """A grammar; made by from_string or from_json_schema."""

    def __init__(self, source: str, kind: str) -> None:
        self.source, self.kind = source, kind

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        return cls(grammar, "gbnf")

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> "LlamaGrammar":
        return cls(json_schema, "json_schema")


class Llama:
    """A model, with the names that llama_cpp gives to its calls."""

    def __init__(self, model_path: str, *, n_ctx: int = 512, n_threads: Optional[int] = None,
                 n_gpu_layers: int = 0, n_batch: int = 512, seed: Optional[int] = None,
                 use_mmap: bool = True, vocab_only: bool = False, **other: Any) -> None:
        _refuse(other, "Llama")
        self.model_path, self._seed = model_path, seed
        self.model = Model(model_path, context=n_ctx, threads=n_threads or 0, batch=n_batch,
                           device="cpu" if n_gpu_layers == 0 else "auto", vocab_only=vocab_only)
        self._n_ctx = n_ctx or min(self.model.info.n_context, 4096)

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str = "", **other: Any) -> "Llama":
        raise NotImplementedError(f"from_pretrained: run \"lace pull {repo_id}:QUANT\" once, "
                                  f"then Llama(\"{repo_id}:QUANT\")")

    # ---- Tokens

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        return self.model.tokenize(text.decode("utf-8", "replace"), add_bos, special)

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes:
        return b"".join(self.model.token_bytes(t) for t in tokens
                        if special or not self.model.is_end(t) and t != self.token_bos())

    def token_bos(self) -> int:
        return self.model.info.bos

    def token_eos(self) -> int:
        return self.model.info.eos

    def n_vocab(self) -> int:
        return self.model.info.n_vocab

    def n_embd(self) -> int:
        return self.model.info.n_embd

    def n_ctx(self) -> int:
        return self._n_ctx

    @property
    def metadata(self) -> Dict[str, str]:
        info = self.model.info
        return {"general.name": info.name, "general.architecture": info.architecture,
                "tokenizer.chat_template": info.chat_template}

    def reset(self) -> None:
        """Nothing is left behind by a call that another one could see."""

    def close(self) -> None:
        self.model.close()

    # ---- Text

    def create_completion(self, prompt: Union[str, List[int]], *, suffix: Optional[str] = None,
                          max_tokens: Optional[int] = 16, echo: bool = False, stream: bool = False,
                          logprobs: Optional[int] = None, **options: Any) -> Any:
        if suffix:
            raise NotImplementedError("suffix: lace does not fill in the middle")
        base = _answer("cmpl-", "text_completion", self.model_path)
        pieces = self.model.stream(prompt, max_tokens=-1 if not max_tokens else max_tokens,
                                   logprobs=-1 if logprobs is None else logprobs,
                                   **self._options(options))
        if stream:
            return self._stream_completion(base, pieces)
        parts = list(pieces)
        given = prompt if isinstance(prompt, str) else self.model.detokenize(prompt)
        text = "".join(p.text for p in parts)
        return {**base, "choices": [{"text": given + text if echo else text, "index": 0,
                                     "logprobs": self._logprobs(parts) if logprobs is not None else None,
                                     "finish_reason": parts[-1].finish}],
                "usage": _usage(parts[-1].stats)}

    __call__ = create_completion

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], *,
                               tools: Optional[Sequence[Mapping[str, Any]]] = None,
                               tool_choice: Any = None, stream: bool = False,
                               response_format: Optional[Mapping[str, Any]] = None,
                               max_tokens: Optional[int] = None, **options: Any) -> Any:
        if response_format and response_format.get("type") == "json_object":
            options["grammar"] = LlamaGrammar.from_json_schema(
                _dumps(response_format.get("schema") or {"type": "object"}))
        base = _answer("chatcmpl-", "chat.completion", self.model_path)
        settings = self._options(options)
        settings["max_tokens"] = max_tokens or -1
        named = tool_choice["function"]["name"] if isinstance(tool_choice, Mapping) else None
        settings["require_call"] = named or tool_choice == "required"
        if stream:
            return self._stream_chat({**base, "object": "chat.completion.chunk"}, messages, tools,
                                     settings)
        reply = self.model.chat(messages, tools=None if tool_choice == "none" else tools, **settings)
        reason = "tool_calls" if reply.tool_calls else reply.finish
        return {**base, "choices": [{"index": 0, "message": reply.message, "logprobs": None,
                                     "finish_reason": reason}],
                "usage": _usage(reply.stats)}

    def create_embedding(self, input: Union[str, List[str]], model: Optional[str] = None) -> Dict[str, Any]:
        texts = [input] if isinstance(input, str) else input
        n = sum(len(self.model.tokenize(text)) for text in texts)
        rows = self.model.embed(texts, normalize=False)
        return {"object": "list", "model": model or self.model_path,
                "data": [{"object": "embedding", "index": i, "embedding": row.tolist()}
                         for i, row in enumerate(rows)],
                "usage": {"prompt_tokens": n, "total_tokens": n}}

    def embed(self, input: Union[str, List[str]], normalize: bool = False) -> Any:
        return self.model.embed(input, normalize).tolist()

    # ---- Inside

    def _options(self, options: Dict[str, Any]) -> Dict[str, Any]:
        given = {_SAMPLING[name]: options.pop(name) for name in list(options) if name in _SAMPLING}
        given = {name: value for name, value in given.items() if value is not None}
        if self._seed is not None:
            given.setdefault("seed", self._seed)
        if given.get("seed", 0) < 0:
            given["seed"] = time.time_ns() & 0xFFFFFFFF
        grammar = options.pop("grammar", None)
        if isinstance(grammar, LlamaGrammar):
            grammar = self.model.grammar(grammar.source, grammar.kind)
        stop = options.pop("stop", None) or []
        bias = {int(k): v for k, v in (options.pop("logit_bias", None) or {}).items()}
        _refuse(options, "a completion")
        return {**given, "grammar": grammar, "stop": stop, "bias": bias}

    def _logprobs(self, parts: List[Piece]) -> Dict[str, Any]:
        chosen = [p for p in parts if p.token >= 0]

        def name(token: int) -> str:
            return self.model.token_bytes(token).decode("utf-8", "replace")

        return {"tokens": [name(p.token) for p in chosen],
                "token_logprobs": [p.logprob for p in chosen],
                "top_logprobs": [{name(t): x for t, x in p.top.items()} for p in chosen]}

    def _stream_completion(self, base: Dict[str, Any], pieces: Iterator[Piece]) -> Iterator[Dict[str, Any]]:
        for piece in pieces:
            if piece.text or piece.finish:
                yield {**base, "choices": [{"text": piece.text, "index": 0, "logprobs": None,
                                            "finish_reason": piece.finish}]}

    def _stream_chat(self, base: Dict[str, Any], messages: Any, tools: Any,
                     settings: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
        import queue
        import threading

        def chunk(delta: Dict[str, Any], finish: Optional[str] = None) -> Dict[str, Any]:
            return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        said: "queue.SimpleQueue[Any]" = queue.SimpleQueue()

        def answer() -> None:
            try:
                said.put(self.model.chat(messages, tools=tools, on_text=said.put, **settings))
            except Exception as e:  # it is raised where the stream is read
                said.put(e)

        threading.Thread(target=answer, daemon=True).start()
        yield chunk({"role": "assistant"})
        while isinstance(part := said.get(), str):
            yield chunk({"content": part})
        if isinstance(part, Exception):
            raise part
        if part.tool_calls:
            yield chunk({"tool_calls": [{"index": i, **c} for i, c in enumerate(part.tool_calls)]})
        yield chunk({}, "tool_calls" if part.tool_calls else part.finish)


def _refuse(options: Mapping[str, Any], where: str) -> None:
    for name, value in options.items():
        if name not in _HARMLESS and value is not None and value is not False:
            raise NotImplementedError(f"{name}: lace has nothing like it for {where}")


def _answer(prefix: str, kind: str, model: str) -> Dict[str, Any]:
    return {"id": prefix + uuid.uuid4().hex, "object": kind, "created": int(time.time()),
            "model": model}


def _usage(stats: Any) -> Dict[str, int]:
    return {"prompt_tokens": stats.n_prompt, "completion_tokens": stats.n_generated,
            "total_tokens": stats.n_prompt + stats.n_generated}


def _dumps(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)
