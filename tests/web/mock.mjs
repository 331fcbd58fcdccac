// A server with the routes that the page uses and answers that a test can choose.
//
// It serves web/ as the real one does, with the same headers, so that the policy is in force. The last
// message of the user decides the answer: "say:NAME" gives ANSWERS[NAME]; anything else is repeated. A message of
// the assistant at the end is continued. Run by hand:
//
//     node tests/web/mock.mjs [PORT]

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { ANSWERS } from './answers.mjs';

const root = new URL('../../', import.meta.url);

// Path -> {type, file}, from the list that the program is built from.
function readAssets() {
  const assets = new Map();
  const text = readFileSync(new URL('src/server/page_assets.def', root), 'utf8');
  for (const m of text.matchAll(/PAGE_ASSET\(\w+, "([^"]+)", "([^"]+)", "([^"]+)"\)/g)) assets.set(m[1], { type: m[2], file: m[3] });
  return assets;
}

// The policy, from the program's source.
function readPolicy() {
  const text = readFileSync(new URL('src/server/page.c', root), 'utf8').replace(/"\s*"/g, '');
  return /Content-Security-Policy: (.*?)\\r\\n/.exec(text)[1];
}

// Odds of a piece, which differ from one to the next; a piece counts as a token.
const ODDS = [0.97, 0.6, 0.3, 0.1, 0.01];
const othersOf = (text, n) => [[text, ODDS[n % ODDS.length]], [' other', 0.02], ['\n', 0.001]];
const bytesOf = (text) => [...Buffer.from(text)];
const oddsOfChat = (text, n) => {
  const all = othersOf(text, n).map(([token, p]) => ({ token, logprob: Math.log(p), bytes: bytesOf(token) }));
  // Two tokens for a piece whose last letter is cut in the middle.
  if (/[^\0-\x7f]$/.test(text)) return { content: [bytesOf(text).slice(0, -1), bytesOf(text).slice(-1)].map((bytes) => ({ token: '\ufffd', logprob: Math.log(0.5), bytes, top_logprobs: [] })) };
  return { content: [{ ...all[0], top_logprobs: all }] };
};
const oddsOfText = (text, n) => ({
  tokens: [text], token_logprobs: [Math.log(ODDS[n % ODDS.length])], top_logprobs: [Object.fromEntries(othersOf(text, n).map(([token, p]) => [token, Math.log(p)]))], text_offset: [0],
});

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// options: {key, hasTemplate, delay (ms between pieces), vision, models, isStrict (a model that is not ready has no props), loadTime (ms)}
export function startMock(options = {}) {
  const assets = readAssets();
  const policy = readPolicy();
  const state = { key: '', hasTemplate: true, delay: 4, running: 0, generated: 0, bodies: [], asked: [], models: null, aborted: 0, fail: null, kvUsed: 2294, vision: false, loads: [], ...options };

  async function answerStream(request, response, body) {
    const isChat = body.messages !== undefined;
    const asked = isChat ? body.messages.findLast((m) => m.role === 'user').content : body.prompt;
    const last = typeof asked === 'string' ? asked : asked.map((part) => part.text || '').join('');
    const name = /^say:(\w+)/.exec(last)?.[1];
    const answer = { ...(name && ANSWERS[name] ? ANSWERS[name] : { content: isChat ? `You wrote: ${last}` : ' and so it went on.' }) };
    if (isChat && body.messages.at(-1).role === 'tool') Object.assign(answer, { content: `It gave: ${body.messages.at(-1).content}`, reasoning: '', tools: [], finish: 'stop' });
    const given = isChat && body.messages.at(-1).role === 'assistant' ? body.messages.at(-1) : null;
    if (given) {
      answer.content = answer.content.startsWith(given.content) ? answer.content.slice(given.content.length) : ' and more';
      answer.reasoning = (answer.reasoning || '').slice((given.reasoning_content || '').length);
    } else if (answer.cutAt) {
      answer.content = answer.content.slice(0, answer.cutAt);
      answer.finish = 'length';
    }
    let isOpen = true;
    let n = 0;
    response.on('close', () => {
      if (!response.writableEnded) {
        isOpen = false;
        state.aborted++;
      }
    });
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
    const send = (delta, finish = null) => {
      const text = delta.content || delta.reasoning_content || '';
      const logprobs = body.logprobs && text ? (isChat ? oddsOfChat : oddsOfText)(text, n) : null;
      const choice = isChat ? { index: 0, delta, logprobs, finish_reason: finish } : { index: 0, text, logprobs, finish_reason: finish };
      response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', model: 'mock', choices: [choice] })}\n\n`);
    };
    state.running++;
    if (isChat) send({ role: 'assistant', content: '' });
    const pieces = (text) => text.match(/\s*\S{1,12}|\s+$/g) || [];
    for (const [kind, text] of [['reasoning_content', answer.reasoning || ''], ['content', answer.content]]) {
      for (const piece of pieces(text)) {
        if (!isOpen) break;
        send({ [kind]: piece });
        n++;
        state.generated++;
        if (answer.breaksAfter === n && !given) response.destroy();
        await sleep(answer.delay ?? state.delay);
      }
    }
    for (const [index, call] of (answer.tools || []).entries()) {
      send({ tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name: call.name, arguments: '' } }] });
      for (const piece of pieces(call.arguments)) send({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
    state.running--;
    if (!isOpen) return;
    if (answer.breaksOff) {
      await sleep(50);
      response.destroy();
      return;
    }
    send({}, answer.finish || 'stop');
    response.write(`data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 40, completion_tokens: n, prompt_tokens_details: { cached_tokens: 16 } } })}\n\n`);
    response.end('data: [DONE]\n\n');
  }

  function metrics() {
    const histogram = (metric, scale) => [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5]
      .map((le, i) => `${metric}_bucket{le="${le * scale}"} ${Math.round(state.generated * Math.min(1, (i + 1) / 7))}`)
      .concat(`${metric}_bucket{le="+Inf"} ${state.generated}`, `${metric}_sum ${state.generated * 0.03}`, `${metric}_count ${state.generated}`).join('\n');
    return [
      `lace_generated_tokens_total ${state.generated}`, `lace_prompt_tokens_total ${state.generated * 3}`,
      `lace_requests_running ${state.running}`, 'lace_requests_waiting 0', 'lace_kv_tokens 16384', `lace_kv_tokens_used ${state.kvUsed}`, 'lace_kv_tokens_kept 4100',
      `lace_prefix_hit_tokens_total ${state.generated * 2}`, `lace_prefix_query_tokens_total ${state.generated * 3}`,
      histogram('lace_time_to_first_token_seconds', 1), histogram('lace_inter_token_seconds', 0.1), histogram('lace_queue_seconds', 0.02),
    ].join('\n') + '\n';
  }

  const server = createServer(async (request, response) => {
    const json = (status, value, headers = {}) => {
      response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
      response.end(JSON.stringify(value));
    };
    const { pathname, searchParams } = new URL(request.url, 'http://mock');
    if (searchParams.has('model')) state.asked.push(`${pathname} ${searchParams.get('model')}`);
    const isUnloaded = (id) => state.isStrict && state.models?.find((model) => model.id === id)?.state !== 'ready';
    let text = '';
    for await (const chunk of request) text += chunk;
    const asset = assets.get(pathname);
    if (asset) {
      response.writeHead(200, { 'Content-Type': asset.type, 'Content-Security-Policy': policy, 'X-Content-Type-Options': 'nosniff' });
      response.end(await readFile(new URL(asset.file, root)));
      return;
    }
    if (state.key && request.headers.authorization !== `Bearer ${state.key}`) {
      json(401, { error: { message: 'a valid API key is needed', type: 'authentication_error' } });
      return;
    }
    if (pathname === '/v1/models' && state.models) json(200, { object: 'list', default: state.models[1].id, data: state.models });
    else if (pathname === '/v1/models') json(200, { object: 'list', data: [{ id: state.model || 'mock-7b-instruct', object: 'model', meta: { n_params: 7241732096, n_ctx_train: 32768 } }] });
    else if (pathname === '/props' && isUnloaded(searchParams.get('model'))) json(200, { role: 'router', model: searchParams.get('model'), state: 'unloaded' });
    else if (pathname === '/props') json(200, { modalities: { vision: state.vision && searchParams.get('model') !== 'blind', audio: false }, chat_template: state.hasTemplate ? '{{ messages }}' : '', n_ctx: 8192, architecture: 'llama', type: 'q4_k', default_generation_settings: { n_ctx: 8192, params: { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1 } } });
    else if (pathname === '/metrics') {
      response.writeHead(200, { 'Content-Type': 'text/plain; version=0.0.4' });
      response.end(metrics());
    } else if (pathname === '/models/load') {
      const model = state.models.find(({ id }) => id === JSON.parse(text).model);
      state.loads.push(model.id);
      model.state = 'loading';
      await sleep(state.loadTime || 0);
      model.state = 'ready';
      json(200, { success: true });
    } else if (pathname === '/v1/chat/completions' || pathname === '/v1/completions') {
      const body = JSON.parse(text);
      state.bodies.push(body);
      if (state.fail) json(state.fail.status, { error: { message: state.fail.message, type: state.fail.type || 'server_error' } }, state.fail.headers);
      else await answerStream(request, response, body);
    } else json(404, { error: { message: `no route ${pathname}`, type: 'not_found_error' } });
  });
  return new Promise((resolve) => {
    server.listen(options.port || 0, '127.0.0.1', () => resolve({
      url: `http://127.0.0.1:${server.address().port}`, state,
      close: () => new Promise((done) => {
        server.closeAllConnections();
        server.close(done);
      }),
    }));
  });
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const mock = await startMock({ port: Number(process.argv[2] || 8099) });
  console.log(mock.url);
}
