// Real clients, as their users install them, against a real server with the built-in model.
//
// The model is a small story teller, so what it says is not looked at; how it is said is.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import Anthropic from '@anthropic-ai/sdk';
import { HumanMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { Ajv } from 'ajv';
import { Ollama } from 'ollama';
import OpenAI from 'openai';
import { startServer } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';

const server = await startServer();
if (!server) {
  console.log('1..1\nok 1 # SKIP this lace has no verb serve');
  process.exit(0);
}
const { url } = server;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const ollama = new Ollama({ host: url });
const model = (await openai.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Once upon a time' }];
const schema = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 0, maximum: 120 }, kind: { enum: ['cat', 'dog'] } },
  required: ['name', 'age', 'kind'], additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'get_weather', description: 'Weather of a place', parameters: { type: 'object', properties: { place: { enum: ['Rome', 'Oslo'] } }, required: ['place'], additionalProperties: false } } }];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A route that this server does not have yet is skipped, in sight.
async function needRoute(path) {
  const response = await fetch(url + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' });
  await response.arrayBuffer();
  if (response.status === 404) skip(`this server has no ${path}`);
}

// A feature that it refuses as a whole, with an answer that says so.
async function unlessRefused(call) {
  try {
    return await call();
  } catch (error) {
    if (error.status === 400 && /only .* (is|are) supported/.test(error.message)) skip(error.message);
    throw error;
  }
}

async function running() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^lace_requests_running (\d+)/m.exec(text)[1]);
}

const failed = await runCases({
  // ---- openai ------------------------------------------------------------------------------------

  async openai_lists_and_retrieves_models() {
    assert.ok(model.length > 0);
    assert.equal((await openai.models.retrieve(model)).id, model);
    await assert.rejects(openai.models.retrieve('nothing'), (e) => e.status === 404);
  },

  async openai_chat() {
    const r = await openai.chat.completions.create({ model, messages, max_tokens: 12, seed: 1 });
    assert.equal(r.object, 'chat.completion');
    assert.equal(r.choices[0].message.role, 'assistant');
    assert.equal(r.choices[0].finish_reason, 'length');
    assert.equal(r.usage.completion_tokens, 12);
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + 12);
  },

  async openai_stream_equals_the_whole_answer() {
    const body = { model, messages, max_tokens: 24, temperature: 0 };
    const whole = await openai.chat.completions.create(body);
    const stream = await openai.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
    let text = '';
    let finish = null;
    let usage = null;
    let first = null;
    for await (const chunk of stream) {
      first ||= chunk;
      text += chunk.choices[0]?.delta?.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(first.choices[0].delta.role, 'assistant');
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, whole.choices[0].finish_reason);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  },

  async openai_completions_with_stop_and_seed() {
    const body = { model, prompt: 'The king said', max_tokens: 40, seed: 7 };
    const a = await openai.completions.create(body);
    const b = await openai.completions.create(body);
    assert.equal(a.choices[0].text, b.choices[0].text);
    const word = a.choices[0].text.trim().split(/\s+/)[2];
    const c = await openai.completions.create({ ...body, stop: [word] });
    assert.equal(c.choices[0].finish_reason, 'stop');
    assert.ok(!c.choices[0].text.includes(word));
    assert.ok(a.choices[0].text.startsWith(c.choices[0].text));
  },

  async openai_several_choices() {
    const r = await openai.chat.completions.create({ model, messages, max_tokens: 8, n: 3, seed: 1 });
    assert.deepEqual(r.choices.map((c) => c.index).sort(), [0, 1, 2]);
  },

  async openai_logprobs() {
    const r = await openai.chat.completions.create({ model, messages, max_tokens: 5, temperature: 0, logprobs: true, top_logprobs: 3 });
    const { content } = r.choices[0].logprobs;
    assert.equal(content.length, 5);
    for (const t of content) {
      assert.equal(t.top_logprobs.length, 3);
      assert.equal(t.token, t.top_logprobs[0].token); // greedy
      assert.ok(t.logprob <= 0 && t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob);
    }
  },

  async openai_json_schema_is_kept() {
    const validate = new Ajv().compile(schema);
    for (let seed = 0; seed < 5; seed++) {
      const r = await unlessRefused(() => openai.chat.completions.create({
        model, messages, max_tokens: 200, seed, response_format: { type: 'json_schema', json_schema: { name: 'pet', strict: true, schema } },
      }));
      assert.equal(r.choices[0].finish_reason, 'stop', r.choices[0].message.content);
      assert.ok(validate(JSON.parse(r.choices[0].message.content)), r.choices[0].message.content);
    }
  },

  async openai_tool_call_is_forced() {
    const r = await unlessRefused(() => openai.chat.completions.create({ model, messages, tools, tool_choice: 'required', max_tokens: 200, seed: 1 }));
    const calls = r.choices[0].message.tool_calls;
    assert.equal(r.choices[0].finish_reason, 'tool_calls');
    assert.equal(calls[0].function.name, 'get_weather');
    assert.ok(['Rome', 'Oslo'].includes(JSON.parse(calls[0].function.arguments).place));
    assert.ok(calls[0].id.length > 0);
  },

  async openai_tool_call_streams() {
    const stream = await unlessRefused(() => openai.chat.completions.create({ model, messages, tools, tool_choice: { type: 'function', function: { name: 'get_weather' } }, max_tokens: 200, seed: 2, stream: true }));
    let name = '';
    let args = '';
    for await (const chunk of stream) {
      for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
        name += call.function?.name ?? '';
        args += call.function?.arguments ?? '';
      }
    }
    assert.equal(name, 'get_weather');
    assert.ok(['Rome', 'Oslo'].includes(JSON.parse(args).place));
  },

  async openai_embeddings() {
    await needRoute('/v1/embeddings');
    const texts = ['a king and a queen', 'a queen and a king'];
    const packed = await openai.embeddings.create({ model, input: texts }); // base64 on the way
    const plain = await openai.embeddings.create({ model, input: texts, encoding_format: 'float' });
    assert.equal(packed.data.length, 2);
    assert.equal(packed.data[0].embedding.length, plain.data[0].embedding.length);
    for (const [i, x] of packed.data[1].embedding.entries()) assert.ok(Math.abs(x - plain.data[1].embedding[i]) < 1e-5);
  },

  async openai_abort_ends_the_generation() {
    const stream = await openai.chat.completions.create({ model, messages, max_tokens: 900, stream: true, ignore_eos: true });
    let n = 0;
    for await (const chunk of stream) if (chunk && ++n === 3) break; // leaving the loop aborts
    for (let i = 0; i < 100 && (await running()) > 0; i++) await sleep(50);
    assert.equal(await running(), 0);
  },

  async openai_too_long_a_prompt_is_an_error_with_both_numbers() {
    await assert.rejects(openai.chat.completions.create({ model, messages: [{ role: 'user', content: 'word '.repeat(3000) }] }),
      (e) => e.status === 400 && e.code === 'context_length_exceeded' && /\d{4}.*1024/.test(e.message));
  },

  async openai_bad_request_is_an_error_of_its_class() {
    await assert.rejects(openai.chat.completions.create({ model, messages: 'x' }), OpenAI.BadRequestError);
    await assert.rejects(openai.chat.completions.create({ model, messages, temperature: -1 }), OpenAI.BadRequestError);
  },

  // ---- @anthropic-ai/sdk -------------------------------------------------------------------------

  async anthropic_messages() {
    await needRoute('/v1/messages');
    const r = await anthropic.messages.create({ model, max_tokens: 12, system: 'Be brief.', messages });
    assert.equal(r.type, 'message');
    assert.equal(r.role, 'assistant');
    assert.equal(r.content[0].type, 'text');
    assert.equal(r.stop_reason, 'max_tokens');
    assert.equal(r.usage.output_tokens, 12);
  },

  async anthropic_stream() {
    await needRoute('/v1/messages');
    const seen = [];
    const stream = anthropic.messages.stream({ model, max_tokens: 16, messages, temperature: 0 });
    stream.on('streamEvent', (e) => seen.push(e.type));
    const final = await stream.finalMessage();
    const whole = await anthropic.messages.create({ model, max_tokens: 16, messages, temperature: 0 });
    assert.equal(final.content[0].text, whole.content[0].text);
    assert.equal(seen[0], 'message_start');
    assert.equal(seen.at(-1), 'message_stop');
    assert.ok(seen.includes('content_block_delta'));
  },

  async anthropic_tools() {
    await needRoute('/v1/messages');
    const r = await unlessRefused(() => anthropic.messages.create({
      model, max_tokens: 200, messages, tool_choice: { type: 'any' },
      tools: [{ name: 'get_weather', description: 'Weather of a place', input_schema: tools[0].function.parameters }],
    }));
    const use = r.content.find((b) => b.type === 'tool_use');
    assert.equal(r.stop_reason, 'tool_use');
    assert.equal(use.name, 'get_weather');
    assert.ok(['Rome', 'Oslo'].includes(use.input.place));
  },

  async anthropic_count_tokens() {
    await needRoute('/v1/messages/count_tokens');
    const counted = await anthropic.messages.countTokens({ model, messages });
    const r = await anthropic.messages.create({ model, max_tokens: 1, messages });
    assert.equal(counted.input_tokens, r.usage.input_tokens);
  },

  // ---- ollama ------------------------------------------------------------------------------------

  async ollama_lists_and_shows() {
    await needRoute('/api/chat');
    assert.ok((await ollama.list()).models.length > 0);
    const shown = await ollama.show({ model });
    assert.ok(shown.details.parameter_size);
  },

  async ollama_chat_and_stream() {
    await needRoute('/api/chat');
    const options = { num_predict: 12, temperature: 0 };
    const whole = await ollama.chat({ model, messages, options });
    assert.equal(whole.message.role, 'assistant');
    assert.equal(whole.eval_count, 12);
    assert.ok(whole.total_duration > 0);
    let text = '';
    let last = null;
    for await (const part of await ollama.chat({ model, messages, options, stream: true })) {
      text += part.message.content;
      last = part;
    }
    assert.equal(text, whole.message.content);
    assert.equal(last.done, true);
  },

  async ollama_generate_and_format() {
    await needRoute('/api/generate');
    const r = await ollama.generate({ model, prompt: 'The king said', options: { num_predict: 8, seed: 1 } });
    assert.ok(r.response.length > 0);
    const made = await ollama.generate({ model, prompt: 'A pet:', format: schema, options: { num_predict: 200, seed: 1 } });
    assert.ok(new Ajv().compile(schema)(JSON.parse(made.response)), made.response);
  },

  async ollama_embed() {
    await needRoute('/api/embed');
    const r = await ollama.embed({ model, input: ['a king', 'a queen'] });
    assert.equal(r.embeddings.length, 2);
    const older = await ollama.embeddings({ model, prompt: 'a king' });
    assert.deepEqual(older.embedding, r.embeddings[0]);
  },

  async ollama_loads_unloads_and_says_its_version() {
    assert.equal((await ollama.generate({ model, prompt: '' })).done_reason, 'load');
    assert.equal((await ollama.chat({ model, messages: [], keep_alive: 0 })).done_reason, 'unload');
    assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+$/);
  },

  async ollama_logprobs() {
    const r = await ollama.generate({ model, prompt: 'The king said', logprobs: true, top_logprobs: 2, options: { num_predict: 4 } });
    assert.equal(r.logprobs.length, 4);
    assert.equal(r.logprobs[0].top_logprobs.length, 2);
  },

  async ollama_errors_are_its_own() {
    await assert.rejects(ollama.generate({ model, prompt: 'x', options: { top_p: 7 } }), (e) => e.status_code === 400 && /^options\.top_p/.test(e.error || e.message));
  },

  // ---- @langchain/openai -------------------------------------------------------------------------

  async langchain_invokes_and_streams() {
    const chat = new ChatOpenAI({ model, apiKey: 'none', configuration: { baseURL: `${url}/v1` }, maxTokens: 12, temperature: 0, maxRetries: 0 });
    const whole = await chat.invoke([new HumanMessage('Once upon a time')]);
    let text = '';
    for await (const chunk of await chat.stream([new HumanMessage('Once upon a time')])) text += chunk.content;
    assert.equal(text, whole.content);
    assert.equal(whole.usage_metadata.output_tokens, 12);
  },

  async langchain_structured_output() {
    const chat = new ChatOpenAI({ model, apiKey: 'none', configuration: { baseURL: `${url}/v1` }, maxTokens: 200, maxRetries: 0 });
    const pet = await unlessRefused(() => chat.withStructuredOutput(schema, { name: 'pet', method: 'jsonSchema' }).invoke('A pet:'));
    assert.ok(new Ajv().compile(schema)(pet), JSON.stringify(pet));
  },

  async langchain_embeds() {
    await needRoute('/v1/embeddings');
    const embeddings = new OpenAIEmbeddings({ model, apiKey: 'none', configuration: { baseURL: `${url}/v1` }, maxRetries: 0 });
    assert.equal((await embeddings.embedDocuments(['a king', 'a queen'])).length, 2);
  },

  // ---- Prometheus --------------------------------------------------------------------------------

  async promtool_accepts_the_metrics() {
    if (spawnSync('promtool', ['--version']).error) skip('promtool is not installed');
    const text = await (await fetch(`${url}/metrics`)).text();
    execFileSync('promtool', ['check', 'metrics'], { input: text });
    assert.match(text, /lace_time_to_first_token_seconds_bucket/);
  },
});
const code = await server.stop();
if (code !== 0) console.log(`# lace serve ended with ${code}: ${server.output()}`);
process.exit(failed || code !== 0 ? 1 : 0);
