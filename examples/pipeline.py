"""lace in the words of transformers: what a script needs to change one import.

    pipeline.py MODEL.gguf
"""
import sys

import lace


class Tokenizer:
    """What scripts use of AutoTokenizer."""

    def __init__(self, model):
        self.model, self.eos_token_id, self.bos_token_id = model, model.info.eos, model.info.bos

    def __call__(self, text):
        return {"input_ids": self.model.tokenize(text)}

    def decode(self, tokens):
        return self.model.detokenize(tokens)

    def apply_chat_template(self, messages):
        return self.model.chat_prompt(messages)


class Pipeline:
    """What scripts use of pipeline("text-generation", model=...)."""

    def __init__(self, path):
        self.model = lace.Model(path)
        self.tokenizer = Tokenizer(self.model)

    def __call__(self, text, max_new_tokens=32, do_sample=True, temperature=0.8, return_full_text=True):
        options = {"max_tokens": max_new_tokens, "temperature": temperature if do_sample else 0}
        if not isinstance(text, str):  # messages
            return [{"generated_text": [*text, self.model.chat(text, **options).message]}]
        written = self.model.generate(text, **options)
        return [{"generated_text": text + written if return_full_text else written}]


pipe = Pipeline(sys.argv[1])
print(pipe("Once upon a time", max_new_tokens=20, do_sample=False))
print(pipe([{"role": "user", "content": "Hello"}], max_new_tokens=10))
