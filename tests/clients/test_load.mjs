// lace bench serve, against a server that counts what it is asked and answers as a case wants.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { lace } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// behave: {cut (bytes a write), refuse: {status, message}, omitDone, name, usage}
async function startCounting(behave = {}) {
  const state = { bodies: [], paths: [], keys: [], now: 0, most: 0 };
  const server = createServer(async (request, response) => {
    state.keys.push(request.headers.authorization);
    if (request.url === '/v1/models') {
      response.end(JSON.stringify({ data: [{ id: behave.name || 'counter' }] }));
      return;
    }
    let text = '';
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text);
    state.bodies.push(body);
    state.paths.push(request.url);
    if (behave.refuse && state.bodies.length > 2) {
      response.writeHead(behave.refuse.status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify({ error: { message: behave.refuse.message } }));
      return;
    }
    state.most = Math.max(state.most, ++state.now);
    const prompt = body.prompt ?? body.messages[0].content;
    let stream = ': a comment\n\n';
    for (let i = 0; i < body.max_tokens; i++) {
      const choice = body.prompt === undefined ? { delta: { content: `w${i} "usage" ` } } : { text: `w${i} \\"text\\" ` };
      stream += `data: ${JSON.stringify({ choices: [choice] })}\r\n\r\n`;
    }
    const n = prompt.split(' ').length;
    stream += `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 2 * n + 5, completion_tokens: body.max_tokens, prompt_tokens_details: { cached_tokens: 3 } } })}\n\n`;
    if (!behave.omitDone || state.bodies.length <= 2) stream += 'data: [DONE]\n\n';
    for (let at = 0; at < stream.length; at += behave.cut || 1000000) response.write(stream.slice(at, at + (behave.cut || 1000000)));
    await sleep(5);
    state.now--;
    response.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    state, url: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    }),
  };
}

function bench(args) {
  return new Promise((resolve) => {
    execFile(lace, ['bench', 'serve', ...args], { env: { ...process.env, OPENAI_API_KEY: 'from-the-environment' } },
      (error, out, err) => resolve({ code: error ? error.code : 0, out, err }));
  });
}

async function measure(behave, args) {
  const server = await startCounting(behave);
  try {
    const result = await bench([server.url, '-o', 'json', ...args]);
    assert.equal(result.code, 0, result.err);
    return { rows: JSON.parse(result.out).results, state: server.state };
  } finally {
    await server.close();
  }
}

await runCases({
  async level_asks_so_often_and_so_many_at_once() {
    const { rows, state } = await measure({}, ['-c', '4', '-n', '24', '--output-len', '8']);
    assert.equal(rows[0].ok, 24);
    assert.equal(state.bodies.length, 26); // two of them to learn how the server counts
    assert.equal(state.most, 4);
    assert.equal(rows[0].output_tokens, 24 * 8);
    assert.equal(rows[0].inter_token_seconds.n, 24 * 7);
    assert.equal(rows[0].cached_tokens, 24 * 3);
  },

  async prompts_have_the_length_in_the_servers_tokens() {
    // Two tokens a word and five around them: 61 words make 127, 62 make 129.
    const { rows } = await measure({}, ['-c', '1', '-n', '10', '--input-len', '128', '--output-len', '1']);
    assert.ok(Math.abs(rows[0].input_tokens / 10 - 128) <= 1, String(rows[0].input_tokens));
  },

  async lengths_follow_the_distribution_and_the_seed() {
    const args = ['-c', '1', '-n', '60', '--input-len', '50-100', '--output-len', '20~5', '--prefix-len', '40'];
    const a = await measure({}, [...args, '--seed', '7']);
    const b = await measure({}, [...args, '--seed', '7']);
    const c = await measure({}, [...args, '--seed', '8']);
    assert.deepEqual(a.state.bodies, b.state.bodies);
    assert.notDeepEqual(a.state.bodies.slice(2), c.state.bodies.slice(2));
    const bodies = a.state.bodies.slice(2);
    const lengths = bodies.map((x) => 2 * x.prompt.split(' ').length + 5);
    assert.ok(Math.min(...lengths) >= 49 && Math.max(...lengths) <= 101, `${Math.min(...lengths)} ${Math.max(...lengths)}`);
    assert.ok(new Set(lengths).size > 8);
    const outputs = bodies.map((x) => x.max_tokens);
    const mean = outputs.reduce((s, x) => s + x, 0) / outputs.length;
    assert.ok(Math.abs(mean - 20) < 3, String(mean)); // 4.6 standard errors
    const begins = bodies.map((x) => x.prompt.split(' ').slice(0, 20).join(' '));
    assert.equal(new Set(begins).size, 1);
    assert.equal(new Set(bodies.map((x) => x.prompt)).size, 60);
  },

  async rate_spreads_requests_over_time() {
    const { rows } = await measure({}, ['--rate', '50', '-n', '50', '--output-len', '2']);
    assert.equal(rows[0].ok, 50);
    assert.ok(rows[0].seconds > 0.4, String(rows[0].seconds)); // a second on average; 49 gaps below 0.4 s in sum have a chance of 1e-8
  },

  async chat_uses_the_route_for_messages() {
    const { rows, state } = await measure({}, ['-c', '1', '-n', '3', '--output-len', '4', '--chat']);
    assert.ok(state.paths.every((p) => p === '/v1/chat/completions'));
    assert.equal(rows[0].first_token_seconds.n, 3);
    assert.equal(rows[0].output_tokens, 12);
  },

  async stream_in_single_bytes_gives_the_same_counts() {
    const { rows } = await measure({ cut: 1 }, ['-c', '2', '-n', '4', '--output-len', '6']);
    assert.equal(rows[0].ok, 4);
    assert.equal(rows[0].output_tokens, 24);
    assert.equal(rows[0].inter_token_seconds.n, 20);
  },

  async key_is_sent() {
    const { state } = await measure({}, ['-c', '1', '-n', '1', '--output-len', '1']);
    assert.ok(state.keys.every((key) => key === 'Bearer from-the-environment'));
  },

  async refusals_are_counted_and_explained() {
    const server = await startCounting({ refuse: { status: 429, message: 'the queue is full' } });
    const result = await bench([server.url, '-c', '2', '-n', '6', '--output-len', '2']);
    await server.close();
    assert.equal(result.code, 1);
    assert.match(result.out, /0 +6 /);
    assert.match(result.out, /the queue is full/);
    assert.match(result.err, /no request succeeded: the queue is full\n$/);
  },

  async stream_without_an_end_is_a_failure() {
    const server = await startCounting({ omitDone: true });
    const result = await bench([server.url, '-c', '1', '-n', '2', '--output-len', '2']);
    await server.close();
    assert.equal(result.code, 1);
    assert.match(result.err, /ended without \[DONE\]/);
  },

  async goodput_counts_what_was_fast_enough() {
    const { rows } = await measure({}, ['-c', '1', '-n', '4', '--output-len', '2', '--slo', 'ttft:60000,e2e:60000']);
    assert.equal(rows[0].good, 4);
    const late = await measure({}, ['-c', '1', '-n', '4', '--output-len', '2', '--slo', 'e2e:0.001']);
    assert.equal(late.rows[0].good, 0);
  },

  async page_shows_every_level_and_stays_a_page() {
    const server = await startCounting({ name: '<script>alert(1)</script>' });
    const result = await bench([server.url, server.url, '-c', '1,2', '-n', '4', '--output-len', '2', '-o', 'html']);
    await server.close();
    assert.equal(result.code, 0, result.err);
    assert.ok(!result.out.includes('<script'));
    assert.match(result.out, /2 at once/);
    assert.match(result.out, /<\/html>\n$/);
  },

  async mistakes_are_explained() {
    const cases = [[[], /a server is missing/], [['http://127.0.0.1:1'], /refused/], [['127.0.0.1:1'], /refused/], [['ftp://127.0.0.1:1'], /expected http:\/\//], [['http://127.0.0.1:1', '--input-len', '0'], /--input-len 0/],
      [['http://127.0.0.1:1', '--slo', 'fast'], /--slo fast/], [['http://127.0.0.1:1', '-c', '1', '--rate', '2'], /exclude each other/], [['http://127.0.0.1:1', '-c', '1.5'], /--concurrency 1\.5/]];
    for (const [args, pattern] of cases) {
      const result = await bench(args);
      assert.equal(result.code, 1);
      assert.match(result.err, pattern);
      assert.equal(result.err.split('\n').length, 2, result.err);
    }
  },
}).then((failed) => process.exit(failed ? 1 : 0));
