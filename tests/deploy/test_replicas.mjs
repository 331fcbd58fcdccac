// deploy/haproxy.cfg with two replicas on loopback: a rolling restart loses no stream.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, startServer } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const dir = mkdtempSync(join(tmpdir(), 'lace-haproxy-'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const replicas = [await startServer(), await startServer()];
const port = await freePort();
const config = readFileSync(new URL('../../deploy/haproxy.cfg', import.meta.url), 'utf8')
  .replace('127.0.0.1:8080', `127.0.0.1:${port}`).replace('127.0.0.1:8081', `127.0.0.1:${replicas[0].port}`).replace('127.0.0.1:8082', `127.0.0.1:${replicas[1].port}`);
writeFileSync(join(dir, 'haproxy.cfg'), config);
const haproxy = spawn('haproxy', ['-db', '-f', join(dir, 'haproxy.cfg')], { stdio: ['ignore', 'ignore', 'pipe'] });
let said = '';
haproxy.stderr.on('data', (data) => (said += data));
const url = `http://127.0.0.1:${port}`;

// One stream to its end: the number of pieces, or what went wrong.
async function stream() {
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ prompt: 'Once upon a time', max_tokens: 400, ignore_eos: true, stream: true }),
  });
  if (response.status !== 200) throw new Error(`status ${response.status}: ${await response.text()}`);
  const text = await response.text();
  if (!text.endsWith('data: [DONE]\n\n')) throw new Error(`cut off after ${text.length} bytes`);
  return text.split('\n\n').length;
}

const failed = await runCases({
  async both_replicas_answer_through_the_proxy() {
    for (let i = 0; ; i++) {
      try {
        if ((await fetch(`${url}/health`)).ok) break;
      } catch {
        // Not yet.
      }
      if (i > 100) throw new Error(`haproxy does not answer: ${said}`);
      await sleep(100);
    }
    await Promise.all(Array.from({ length: 8 }, stream));
    for (const r of replicas) {
      const text = await (await fetch(`${r.url}/metrics`)).text();
      assert.ok(Number(/^lace_generated_tokens_total (\d+)/m.exec(text)[1]) > 0);
    }
  },

  async rolling_restart_loses_no_stream() {
    let isOver = false;
    let n = 0;
    const problems = [];
    const clients = Array.from({ length: 6 }, async () => {
      while (!isOver) {
        try {
          assert.ok((await stream()) > 100);
          n++;
        } catch (error) {
          problems.push(String(error.cause || error));
        }
      }
    });
    for (let i = 0; i < 2; i++) {
      await sleep(2000);
      const before = n;
      assert.equal(await replicas[i].stop(), 0); // drains
      replicas[i] = await startServer([], replicas[i].port);
      await sleep(2000); // two good checks, and some work
      assert.ok(n > before, 'work went on meanwhile');
    }
    isOver = true;
    await Promise.all(clients);
    console.log(`# ${n} streams of 400 tokens through two restarts`);
    assert.deepEqual(problems, []);
  },
});
haproxy.kill();
for (const r of replicas) await r.stop();
rmSync(dir, { recursive: true });
process.exit(failed ? 1 : 0);
