// What a kept prefix saves across a restart: a prompt of 20,000 tokens is answered, the server is killed,
// and the next one answers the same prompt from the files of --cache-dir.
//
//     node bench/cache_restart.mjs MODEL [--tokens 20000]

import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startServer } from '../tests/serve.mjs';

const [, , model, , count] = process.argv;
const nTokens = Number(count ?? 20000);
const folder = mkdtempSync(join(tmpdir(), 'lace-cache-'));
const prompt = Array.from({ length: nTokens }, (_, i) => 300 + ((i * 7919 + (i >> 5)) % 3000));
// A file that is being written may get its name between the list and the look at it: it counts the next time.
const bytesOf = (name) => statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0;
const size = () => readdirSync(folder).reduce((n, name) => n + bytesOf(name), 0);

async function ask(server) {
  const begin = performance.now();
  const answer = await fetch(`${server.url}/v1/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt, max_tokens: 8, temperature: 0 }),
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(JSON.stringify(body));
  return { ms: performance.now() - begin, text: body.choices[0].text, cached: body.usage.prompt_tokens_details.cached_tokens };
}

let server = null;
async function start() {
  server = await startServer([model, '-c', String(nTokens + 1024), '--kv-memory', '2G', '--max-running', '4', '--cache-dir', folder]);
}

try {
  await start();
  const cold = await ask(server);
  const warm = await ask(server);
  for (let before = -1; size() !== before;) {
    before = size();
    await new Promise((resolve) => setTimeout(resolve, 500)); // pages are written behind
  }
  await server.stop('SIGKILL');
  await start();
  const restarted = await ask(server);
  if (restarted.text !== cold.text || warm.text !== cold.text) throw new Error('the texts differ');
  console.log(`cold ${cold.ms.toFixed(0)} ms, the same server ${warm.ms.toFixed(0)} ms (${warm.cached} tokens found)`);
  console.log(`after a restart ${restarted.ms.toFixed(0)} ms (${restarted.cached} found): ${(restarted.ms / cold.ms).toFixed(3)} of cold; ${(size() / 1e6).toFixed(0)} MB of files`);
} finally {
  await server?.stop(); // it would go on to write into the folder
  rmSync(folder, { recursive: true, force: true });
}
