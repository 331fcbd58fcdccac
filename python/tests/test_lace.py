"""The Python package, on a small model of the repository."""
import asyncio
import gc
import json
import math
import os
import subprocess
import sys
import threading
import time

import numpy
import pytest

import lace
from lace import _abi
from lace.llama_cpp import Llama, LlamaGrammar

MODEL = "models/tales-4m.gguf"
GREEDY = {"temperature": 0, "max_tokens": 12}
PERSON = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def model():
    with lace.Model(MODEL, device="cpu") as opened:
        yield opened


def test_structs_have_the_sizes_of_c(tmp_path):
    """ctypes and the compiler agree about every struct, field by field."""
    lines = []
    for name in dir(_abi):
        struct = getattr(_abi, name)
        if isinstance(struct, type) and struct.__module__ == _abi.__name__ and hasattr(struct, "_fields_"):
            c_name = "lace_" + "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
            lines.append(f'printf("{name} %zu\\n", sizeof({c_name}));')
            lines += [f'printf("{name}.{f} %zu\\n", offsetof({c_name}, {f}));' for f, _ in struct._fields_]
    source = tmp_path / "sizes.c"
    source.write_text("#include <lace.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "}\n")
    program = str(tmp_path / "sizes")
    try:
        subprocess.run(["cc", "-Iinclude", "-o", program, str(source)], check=True)
    except FileNotFoundError:
        pytest.skip("there is no compiler here")
    said = dict(line.split() for line in subprocess.check_output([program], text=True).splitlines())
    assert len(said) > 150
    for what, number in said.items():
        name, _, field = what.partition(".")
        struct = getattr(_abi, name)
        found = getattr(struct, field).offset if field else _abi.sizeof(struct)
        assert found == int(number), what


def test_tokens_go_there_and_back(model):
    tokens = model.tokenize("Once upon a time, über")
    assert model.detokenize(tokens).strip() == "Once upon a time, über"
    assert b"".join(model.token_bytes(t) for t in tokens[1:]).decode() == "Once upon a time, über"


def test_generate_is_what_the_session_computes(model):
    tokens = model.tokenize("The king")
    session = model.session(context=64)
    logits, chosen = session.eval(tokens), []
    for _ in range(12):
        chosen.append(int(logits.argmax()))
        logits = session.eval([chosen[-1]])
    assert model.generate("The king", **GREEDY) == model.detokenize(chosen)
    assert session.length() == len(tokens) + 12
    session.truncate(len(tokens))
    assert session.length() == len(tokens)
    session.close()


def test_logits_of_all_tokens(model):
    tokens = model.tokenize("Once upon a time")
    with model.session(outputs=16) as session:
        rows = session.eval(tokens, all_logits=True)
        assert rows.shape == (len(tokens), model.info.n_vocab) and rows.dtype == numpy.float32
        assert numpy.isfinite(rows).all()
    with pytest.raises(ValueError, match="closed"):
        session.eval(tokens)


def test_seeds_repeat_a_text(model):
    one = model.generate("A cat", seed=7, max_tokens=20)
    assert one == model.generate("A cat", sampling=lace.Sampling(seed=7), max_tokens=20)
    assert one != model.generate("A cat", seed=8, max_tokens=20)


def test_pieces_have_probabilities_and_an_end(model):
    pieces = list(model.stream("The king", logprobs=3, **GREEDY))
    assert [p.finish for p in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish == "length" and pieces[-1].stats.n_generated == 12
    for piece in pieces[:12]:
        assert len(piece.top) == 3 and piece.logprob == max(piece.top.values())
        assert 0 < math.exp(piece.logprob) <= 1


def test_a_stop_ends_the_text(model):
    whole = model.generate("The king", **GREEDY)
    assert model.generate("The king", stop=whole[10:14], **GREEDY) == whole[:10]


def test_a_loop_that_is_left_ends_the_generation(model):
    for piece in model.stream("The king", max_tokens=400):
        break
    assert model.generate("The king", **GREEDY)


def test_grammars_hold(model):
    text = model.generate("Age:", grammar=PERSON, max_tokens=60, seed=1)
    assert 1 <= json.loads(text)["age"] <= 99
    assert model.generate("Say", grammar='root ::= "yes" | "no"', seed=2).strip() in ("yes", "no")
    word = model.grammar("[a-z]{3}", "regex")
    assert len(model.generate("Say", grammar=word, seed=3)) == 3
    with pytest.raises(lace.LaceError) as failed:
        model.grammar("root ::= (")
    assert failed.value.status == "E_GRAMMAR"
    with pytest.raises(ValueError, match="expected one of"):
        model.grammar("x", "ebnf")


def test_chat_and_calls(model):
    messages = [{"role": "user", "content": "Hello"}]
    assert model.chat_prompt(messages) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    heard = []
    reply = model.chat(messages, on_text=heard.append, **GREEDY)
    assert reply.content == "".join(heard) and reply.finish == "length"
    assert reply.message["role"] == "assistant"
    tool = {"type": "function", "function": {"name": "look", "parameters": PERSON}}
    called = model.chat(messages, tools=[tool], require_call=True, seed=1, max_tokens=200)
    assert called.tool_calls[0]["function"]["name"] == "look"
    assert 1 <= json.loads(called.tool_calls[0]["function"]["arguments"])["age"] <= 99
    with pytest.raises(lace.LaceError):
        model.chat([{"role": "user", "content": 5}], **GREEDY)


def test_async_streams_share_the_model(model):
    starts = ["The king", "A cat", "Once"]

    async def one(start):
        return "".join([piece.text async for piece in model.astream(start, **GREEDY)])

    async def all_of_them():
        return await asyncio.gather(*(one(start) for start in starts))

    assert asyncio.run(all_of_them()) == [model.generate(start, **GREEDY) for start in starts]


def test_other_threads_run_while_it_computes(model):
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.0005)

    clock = threading.Thread(target=tick)
    clock.start()
    session = model.session(context=1024)
    ticks.clear()
    session.eval([5] * 900)  # one call of the library
    n = len(ticks)
    stop.set()
    clock.join()
    assert n > 3


def test_embeddings(model):
    vectors = model.embed(["a king", "a queen", "a king"])
    assert vectors.shape == (3, model.info.n_embd) and vectors.dtype == numpy.float32
    assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    assert numpy.allclose(vectors[0], vectors[2], atol=1e-4)
    assert model.embed("a king").shape == (model.info.n_embd,)
    with pytest.raises(lace.LaceError) as failed:
        model.score("who", ["a king"])
    assert failed.value.status == "E_UNSUPPORTED"


def test_progress_is_told_and_can_cancel():
    told = []
    with lace.Model(MODEL, device="cpu", progress=lambda what, done: told.append(done)) as model:
        model.generate("A", max_tokens=1)
    assert told and 0 <= min(told) and max(told) <= 1
    with lace.Model(MODEL, device="cpu", progress=lambda what, done: False) as model:
        with pytest.raises(lace.LaceError) as failed:
            model.generate("A", max_tokens=1)
    assert failed.value.status == "E_CANCELLED"


def test_errors_say_what_is_wrong(model, tmp_path):
    with pytest.raises(lace.LaceError) as failed:
        lace.Model(str(tmp_path / "none.gguf"))
    assert "none.gguf" in str(failed.value)
    (tmp_path / "bad.gguf").write_bytes(b"GGUFxxxxxxxxxxxx")
    with pytest.raises(lace.LaceError):
        lace.Model(str(tmp_path / "bad.gguf"))
    with pytest.raises(lace.LaceError) as failed:
        model.generate("word " * 5000)
    assert failed.value.status == "E_CONTEXT"
    with pytest.raises(ValueError, match="kv_type"):
        lace.Model(MODEL, kv_type="q1")
    with pytest.raises(TypeError):
        model.generate("A", temprature=1)


def test_closing_in_the_middle_is_safe():
    model = lace.Model(MODEL, device="cpu")
    session, stream = model.session(), model.stream("The king", max_tokens=400)
    next(stream)
    model.close()
    model.close()
    assert list(stream)[-1].finish == "cancelled"
    with pytest.raises(ValueError, match="closed"):
        session.eval([1])
    with pytest.raises(ValueError, match="closed"):
        model.generate("A")
    del model, session, stream
    gc.collect()


def test_devices_and_models():
    assert lace.devices()[0].id == "cpu" and lace.devices()[0].total_bytes > 1 << 26
    assert isinstance(lace.models(), list)


def test_a_missing_library_is_explained():
    told = subprocess.run([sys.executable, "-c", "import lace"], capture_output=True, text=True,
                          env={**os.environ, "LACE_LIBRARY": "/nowhere/liblace.so"})
    assert told.returncode != 0 and "LACE_LIBRARY" in told.stderr


# ---- llama_cpp


@pytest.fixture(scope="module")
def llm():
    made = Llama(MODEL, n_ctx=256, verbose=False)
    yield made
    made.close()


def test_completion_like_llama_cpp(llm, model):
    made = llm("The king", max_tokens=12, temperature=0, logprobs=2)
    assert made["object"] == "text_completion" and made["usage"]["completion_tokens"] == 12
    assert made["choices"][0]["text"] == model.generate("The king", **GREEDY)
    assert made["choices"][0]["finish_reason"] == "length"
    assert len(made["choices"][0]["logprobs"]["token_logprobs"]) == 12
    parts = list(llm.create_completion("The king", max_tokens=12, temperature=0, stream=True))
    assert "".join(p["choices"][0]["text"] for p in parts) == made["choices"][0]["text"]
    assert llm("A", max_tokens=2, echo=True)["choices"][0]["text"].startswith("A")


def test_chat_completion_like_llama_cpp(llm):
    messages = [{"role": "user", "content": "Hello"}]
    made = llm.create_chat_completion(messages, max_tokens=8, temperature=0)
    chunks = list(llm.create_chat_completion(messages, max_tokens=8, temperature=0, stream=True))
    said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert said == made["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    formed = llm.create_chat_completion(messages, max_tokens=60, seed=1,
                                        response_format={"type": "json_object", "schema": PERSON})
    assert "age" in json.loads(formed["choices"][0]["message"]["content"])


def test_the_rest_like_llama_cpp(llm):
    tokens = llm.tokenize(b"Once upon")
    assert tokens[0] == llm.token_bos() and llm.detokenize(tokens) == b"Once upon"
    assert len(llm.create_embedding(["a", "b"])["data"]) == 2 and llm.n_ctx() == 256
    yes = llm("Say", grammar=LlamaGrammar.from_string('root ::= "yes"'), max_tokens=9)
    assert yes["choices"][0]["text"] == "yes"
    with pytest.raises(NotImplementedError, match="lora_path"):
        Llama(MODEL, lora_path="x")
    with pytest.raises(NotImplementedError, match="lace pull a/b:QUANT"):
        Llama.from_pretrained("a/b", filename="*q8_0.gguf")
    with pytest.raises(NotImplementedError, match="suffix"):
        llm("A", suffix="B")


# ---- Examples


@pytest.mark.parametrize("line, says", [
    (["probabilities.py", MODEL, "The king", "{tmp}/p.svg"], "'"),
    (["extract.py", MODEL], "name"),
    (["pipeline.py", MODEL], "generated_text"),
])
def test_examples_run(line, says, tmp_path):
    line = [part.replace("{tmp}", str(tmp_path)) for part in line]
    ran = subprocess.run([sys.executable, "examples/" + line[0], *line[1:]], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert says in ran.stdout
