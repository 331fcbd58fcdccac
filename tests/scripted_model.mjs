// A model that says what a test wants it to: a real GGUF file, whose weights are a chain of tokens.
//
// Attention and FFN add nothing (their last matrices are zero), so the next token follows from the
// last one alone: embeddings are unit vectors, and the output matrix leads from each to its
// successor. A script is a list of pieces, each a token of its own, behind a control token with its
// name; the template ends the prompt with the name of the script that is to be said. All else is
// lace's own: the request, the template, the tokens, the steps, sampling, and reading the reply.

import { readFileSync, writeFileSync } from 'node:fs';
import { readMetadata, writeGguf } from './gguf.mjs';

const N_CONTEXT = 131072;
const HEAD_DIM = 32;

// Qwen's form: tools in the system message, calls in <tool_call>, results from the user.
const HISTORY = `{%- if tools %}<|im_start|>system
# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For a call write <tool_call>
{"name": ..., "arguments": ...}
</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}
{%- if m.role == 'tool' %}
<tool_response>
{{ m.content }}
</tool_response>
{%- else %}
{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
`;

// GPT-2's alphabet: how the bytes of a token are written.
function byteLetters() {
  const letters = [];
  let next = 256;
  for (let b = 0; b < 256; b++) {
    const isPlain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    letters.push(String.fromCodePoint(isPlain ? b : next++));
  }
  return letters;
}

// The text in pieces of a few bytes, none of which is a token yet; they are added to `taken`.
function cut(text, taken, letters) {
  const bytes = [...Buffer.from(text)].map((b) => letters[b]);
  const pieces = [];
  for (let at = 0; at < bytes.length;) {
    let n = 4;
    // A piece that ended with '<' would take the beginning of a control token behind it.
    while (at + n < bytes.length && (taken.has(bytes.slice(at, at + n).join('')) || bytes[at + n - 1] === '<')) n++;
    let piece = bytes.slice(at, at + n).join('');
    while (taken.has(piece)) piece = pieces.pop() + piece; // the end of the text: longer to the left
    taken.add(piece);
    pieces.push(piece);
    at += n;
  }
  return pieces;
}

// Tokens that users define are written as they are; of ASCII.
function plain(piece, letters) {
  return [...piece].map((letter) => String.fromCodePoint(letters.indexOf(letter))).join('');
}

// scripts: { name: text }. choose: a Jinja expression that gives the name for `messages` and `tools`.
// more.template: a chat template for the history in place of Qwen's; more.controls: its control tokens;
// more.ends: the one that ends each script, by name; more.isReadBack: a script's text, in a prompt, has
// its own tokens again.
export function writeScriptedModel(path, scripts, choose, more = {}) {
  const metadata = readMetadata(readFileSync(new URL('../models/tales-4m.gguf', import.meta.url)));
  for (const key of [...metadata.keys()]) if (!key.startsWith('tokenizer.')) metadata.delete(key);
  const tokens = metadata.get('tokenizer.ggml.tokens').value;
  const types = metadata.get('tokenizer.ggml.token_type').value;
  const letters = byteLetters();
  const taken = new Set(tokens);
  const add = (token, type) => (types.push(type), tokens.push(token) - 1);
  const NORMAL = 1;
  const CONTROL = 3;
  const USER_DEFINED = 4;
  const controls = new Map((more.controls ?? ['<|im_start|>', '<|im_end|>']).map((name) => [name, add(name, CONTROL)]));
  const endOf = (name) => controls.get(more.ends?.[name] ?? '<|im_end|>');
  const ends = [...new Set(Object.keys(scripts).map(endOf))];
  const end = ends[0];
  const follows = new Map(); // token to token
  for (const [name, text] of Object.entries(scripts)) {
    let last = add(`<|say ${name}|>`, CONTROL);
    for (const piece of cut(text, taken, letters)) {
      const token = more.isReadBack ? add(plain(piece, letters), USER_DEFINED) : add(piece, NORMAL);
      follows.set(last, token);
      last = token;
    }
    follows.set(last, endOf(name));
  }
  const width = Math.ceil((follows.size + 1) / 32) * 32;
  const embedding = new Float32Array(tokens.length * width);
  const output = new Float32Array(tokens.length * width);
  const places = new Map([...follows.keys()].map((token, i) => [token, i + 1]));
  for (let token = 0; token < tokens.length; token++) embedding[token * width + (places.get(token) ?? 0)] = 1;
  for (const [token, next] of follows) output[next * width + places.get(token)] = 100;
  output[end * width] = 100; // behind anything else there is nothing to say

  const set = (key, kind, value) => metadata.set(key, { kind, value });
  const general = {
    'general.architecture': ['string', 'llama'], 'general.name': ['string', 'Scripted'], 'llama.context_length': ['u32', N_CONTEXT],
    'llama.block_count': ['u32', 1], 'llama.embedding_length': ['u32', width], 'llama.feed_forward_length': ['u32', 32],
    'llama.attention.head_count': ['u32', 1], 'llama.attention.head_count_kv': ['u32', 1], 'llama.attention.key_length': ['u32', HEAD_DIM],
    'llama.attention.value_length': ['u32', HEAD_DIM], 'llama.rope.dimension_count': ['u32', HEAD_DIM],
    'llama.attention.layer_norm_rms_epsilon': ['f32', 1e-6], 'llama.vocab_size': ['u32', tokens.length],
    'tokenizer.ggml.eos_token_id': ['u32', end], 'tokenizer.ggml.add_bos_token': ['bool', false],
    'tokenizer.chat_template': ['string', more.template
      ? `${more.template}{%- if add_generation_prompt %}<|say {{ ${choose} }}|>{%- endif %}` : `${HISTORY}<|say {{ ${choose} }}|>{%- endif %}`],
  };
  if (ends.length > 1) general['tokenizer.ggml.eot_token_id'] = ['u32', ends[1]];
  for (const [key, [kind, value]] of Object.entries(general)) set(key, kind, value);
  const matrix = (name, rows, columns, data = new Float32Array(rows * columns)) => ({ name, shape: [columns, rows], data });
  const norm = (name) => ({ name, shape: [width], data: new Float32Array(width).fill(1) });
  const block = 'blk.0.';
  writeFileSync(path, writeGguf(metadata, [
    matrix('token_embd.weight', tokens.length, width, embedding), matrix('output.weight', tokens.length, width, output), norm('output_norm.weight'),
    norm(`${block}attn_norm.weight`), norm(`${block}ffn_norm.weight`),
    matrix(`${block}attn_q.weight`, HEAD_DIM, width), matrix(`${block}attn_k.weight`, HEAD_DIM, width), matrix(`${block}attn_v.weight`, HEAD_DIM, width),
    matrix(`${block}attn_output.weight`, width, HEAD_DIM), matrix(`${block}ffn_gate.weight`, 32, width), matrix(`${block}ffn_up.weight`, 32, width),
    matrix(`${block}ffn_down.weight`, width, 32),
  ]));
}
