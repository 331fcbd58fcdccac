// Requests in the shapes that Open WebUI sends: a chat with native tool calls, by OpenAI's API and by
// Ollama's, a second turn with the tool's result (whose calls carry the index of their deltas), and the
// title that it asks for beside. The model is a chain of tokens that the test has written.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeScriptedModel } from '../scripted_model.mjs';
import { startServer } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const dir = mkdtempSync(join(tmpdir(), 'lace-open-webui-'));
const call = { name: 'get_weather', arguments: { city: 'Paris', days: 2 } };
writeScriptedModel(join(dir, 'scripted.gguf'), {
  ask: `Let me look.\n<tool_call>\n${JSON.stringify(call)}\n</tool_call>`,
  tell: 'It is sunny in Paris.',
  title: '{ "title": "Weather" }',
}, `'tell' if 'sunny' in (messages | selectattr('role', 'eq', 'tool') | map(attribute='content') | join(' ')) else 'ask' if tools else 'title'`);
const server = await startServer([join(dir, 'scripted.gguf'), '-c', '8192']);

const parameters = {
  type: 'object', required: ['city'], additionalProperties: false,
  properties: { city: { type: 'string', description: 'The city' }, days: { type: 'integer' } },
};
const tools = (more) => [{ type: 'function', function: { name: 'get_weather', description: 'The weather of a city', parameters, ...more } }];
const messages = [
  { role: 'system', content: 'You are a helpful assistant.' },
  { role: 'user', content: 'What is the weather in Paris?' },
];

async function send(path, body) {
  const answer = await fetch(server.url + path, body && { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer none' }, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.equal(answer.status, 200, `${path}: ${answer.status} ${text}`);
  return text;
}

// What a stream of OpenAI's comes to: content, calls by index, the reason, the usage.
async function stream(body) {
  const text = await send('/v1/chat/completions', { stream: true, model: 'scripted', stream_options: { include_usage: true }, ...body });
  const events = text.split('\n\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
  assert.equal(events.pop(), '[DONE]');
  const all = { content: '', calls: [] };
  for (const event of events.map((e) => JSON.parse(e))) {
    all.usage = event.usage ?? all.usage;
    for (const choice of event.choices) {
      all.content += choice.delta.content ?? '';
      all.reason = choice.finish_reason ?? all.reason;
      for (const delta of choice.delta.tool_calls ?? []) {
        const at = (all.calls[delta.index] ??= { index: delta.index, id: delta.id, type: 'function', function: { name: '', arguments: '' } });
        at.function.name += delta.function.name ?? '';
        at.function.arguments += delta.function.arguments ?? '';
      }
    }
  }
  return all;
}

async function chat(more) {
  const first = await stream({ messages, tools: tools(more) });
  assert.equal(first.content.trim(), 'Let me look.');
  assert.equal(first.reason, 'tool_calls');
  assert.ok(first.usage.completion_tokens > 0 && first.usage.prompt_tokens > 0);
  assert.equal(first.calls.length, 1);
  assert.ok(first.calls[0].id);
  assert.equal(first.calls[0].function.name, call.name);
  assert.deepEqual(JSON.parse(first.calls[0].function.arguments), call.arguments);
  const second = await stream({
    messages: [...messages, { role: 'assistant', content: first.content, tool_calls: first.calls }, { role: 'tool', tool_call_id: first.calls[0].id, content: '"sunny"' }],
    tools: tools(more),
  });
  assert.equal(second.content, 'It is sunny in Paris.');
  assert.equal(second.reason, 'stop');
  const whole = JSON.parse(await send('/v1/chat/completions', { model: 'scripted', stream: false, messages, tools: tools(more) }));
  assert.deepEqual(JSON.parse(whole.choices[0].message.tool_calls[0].function.arguments), JSON.parse(first.calls[0].function.arguments));
}

const failed = await runCases({
  models_are_listed_for_both_kinds_of_connection: async () => {
    assert.ok(JSON.parse(await send('/v1/models')).data.length === 1);
    assert.ok(JSON.parse(await send('/api/tags')).models.length === 1);
    assert.ok(JSON.parse(await send('/api/version')).version);
    JSON.parse(await send('/api/ps'));
  },
  a_chat_with_a_native_call_goes_through: () => chat({}),
  strict_tools_are_held_to_their_schema_and_nothing_else_changes: () => chat({ strict: true }),
  a_title_is_asked_for_beside: async () => {
    const body = { model: 'scripted', messages: [{ role: 'user', content: '### Task:\nGenerate a concise title.' }], stream: false, max_completion_tokens: 1000 };
    assert.equal(JSON.parse(await send('/v1/chat/completions', body)).choices[0].message.content, '{ "title": "Weather" }');
  },
  ollama_connections_stream_the_same_call: async () => {
    const lines = (await send('/api/chat', { model: 'scripted', messages, tools: tools({}), stream: true, options: { num_ctx: 4096, temperature: 0.7 }, keep_alive: '5m' }))
      .trim().split('\n').map((line) => JSON.parse(line));
    const calls = lines.flatMap((line) => line.message?.tool_calls ?? []);
    assert.deepEqual(calls.map((c) => c.function.arguments), [call.arguments]);
    assert.ok(lines.at(-1).done);
  },
});
await server.stop();
rmSync(dir, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
