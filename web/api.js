// Talks to the server: requests with the key, streams of server-sent events, and errors as one
// sentence for people.

import { apiKey } from './store.js';

export class ApiError extends Error {
  constructor(status, message, type, retryAfter) {
    super(message);
    this.status = status; // 0: the server was not reached
    this.type = type || '';
    this.retryAfter = retryAfter || 0; // seconds
  }
}

function headers(extra) {
  const all = { ...extra };
  if (apiKey()) all.Authorization = `Bearer ${apiKey()}`;
  return all;
}

// fetch, with failures as ApiError; an abort stays an AbortError.
async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: 'omit', cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server does not answer. Is lace serve still running?');
  }
  if (response.ok) return response;
  let message = '';
  let type = '';
  try {
    const body = await response.json();
    const inner = body.error || body;
    message = typeof inner === 'string' ? inner : inner.message || '';
    type = inner.code || inner.type || '';
  } catch {
    // Not JSON: some proxy answered.
  }
  if (!message) message = `The server answered ${response.status} ${response.statusText}`.trim();
  throw new ApiError(response.status, message, String(type), Number(response.headers.get('retry-after')) || 0);
}

export async function getJson(path, signal) {
  return (await send(path, { headers: headers(), signal })).json();
}

export async function getText(path, signal) {
  return (await send(path, { headers: headers(), signal })).text();
}

// ---- Streams -----------------------------------------------------------------------------------

// The data of each event of a stream, as it comes.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === '') {
          if (data.length > 0) yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:')) {
          data.push(line.slice(line[5] === ' ' ? 6 : 5));
        } // comments (pings) and other fields mean nothing here
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function postJson(path, body, signal) {
  return (await send(path, { method: 'POST', headers: headers({ 'Content-Type': 'application/json' }), body: JSON.stringify(body), signal })).json();
}

// Post `body` and call on({content, reasoning, tools, logprobs, finish, cut, usage}) for each piece.
export async function stream(path, body, signal, on) {
  const response = await send(path, {
    method: 'POST',
    headers: headers({ 'Content-Type': 'application/json' }),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let isDone = false;
  try {
    for await (const data of events(response)) {
      if (data === '[DONE]') {
        isDone = true;
        break;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(response.status, chunk.error.message || 'The server gave up.', chunk.error.type);
      const choice = chunk.choices && chunk.choices[0];
      const delta = (choice && choice.delta) || {};
      on({
        content: delta.content || (choice && choice.text) || '',
        reasoning: delta.reasoning_content || delta.reasoning || '',
        tools: delta.tool_calls || [],
        logprobs: (choice && choice.logprobs) || null,
        finish: (choice && choice.finish_reason) || null,
        cut: (choice && (choice.stop_reason || choice.reasoning_end)) || '',
        usage: chunk.usage || null,
        model: chunk.model || '',
      });
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ApiError) throw error;
    throw new ApiError(0, 'The connection broke off in the middle of the answer.');
  }
  if (!isDone) throw new ApiError(0, 'The connection broke off in the middle of the answer.');
}

// ---- Metrics -----------------------------------------------------------------------------------

// Prometheus text to a Map: name -> [{labels, value}].
export function parseMetrics(text) {
  const all = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line[0] === '#') continue;
    const brace = line.indexOf('{');
    const close = line.lastIndexOf('}');
    const space = brace >= 0 ? close + 1 : line.indexOf(' ');
    const name = line.slice(0, brace >= 0 ? brace : space);
    const value = Number(line.slice(space).trim().split(' ')[0].replace('+Inf', 'Infinity'));
    const labels = {};
    if (brace >= 0) for (const m of line.slice(brace + 1, close).matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[m[1]] = m[2];
    if (!all.has(name)) all.set(name, []);
    all.get(name).push({ labels, value });
  }
  return all;
}
