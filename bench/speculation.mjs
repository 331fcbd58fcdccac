// What guesses bring in the server: the same requests, 8 at a time, go to a server with guesses and to one
// without, in turn, so that both meet the same machine. Prints tokens per second of the clock and of the
// servers' processor time (which a busy machine disturbs less), the medians of all rounds and the ratios.
//
//     node bench/speculation.mjs MODEL [--draft MODEL] [--lookup] [--rounds 8] [--tokens 200]
//         [--sequences 8] [--deterministic] [--threads N]
//
// Texts: "code" is text as programs and data have it, which a draft guesses well; "prose" is written at
// temperature 1.5, where most guesses fail. With --deterministic the texts of both servers must be equal.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { startServer } from '../tests/serve.mjs';

const { values: options, positionals: [model] } = parseArgs({
  allowPositionals: true,
  options: {
    draft: { type: 'string' }, lookup: { type: 'boolean' }, rounds: { type: 'string', default: '8' },
    tokens: { type: 'string', default: '200' }, sequences: { type: 'string', default: '8' },
    deterministic: { type: 'boolean' }, threads: { type: 'string' },
  },
});
const rounds = Number(options.rounds);
const nTokens = Number(options.tokens);
const nSequences = Number(options.sequences);

const lines = (make, n) => Array.from({ length: n }, (_, i) => make(i)).join('\n');
const code = [
  lines((i) => `  if (name == "item ${i}") return ${i};`, 12),
  lines((i) => `{"id": ${i}, "name": "item ${i}", "price": ${i}0},`, 12),
  lines((i) => `<li><a href="page${i}.html">Page ${i}</a></li>`, 12),
  lines((i) => `set_value(table, ${i}, read_value(file, ${i}));`, 12),
  lines((i) => `${i}, ${i + 1}, ${i + 2}, ${i + 3},`, 20),
  lines((i) => `INSERT INTO users VALUES (${i}, 'user', 'mail');`, 12),
  lines((i) => `  case ${i}: x = x + ${i}; break;`, 14),
  lines((i) => `export const key${i} = 'value${i}';`, 14),
];
const prose = [
  'The king had three sons, and the youngest', 'It was late in the evening when the stranger',
  '"My dear," said the old woman, "you must', 'There is no doubt that the history of',
  'In the middle of the forest stood', 'She opened the letter and began to', 'The sea was calm, and the sailors',
  'When the war was over, the people',
];
const kinds = {
  code: { prompts: code, more: { temperature: 0 } },
  prose: { prompts: prose, more: { temperature: 1.5, top_k: 0, top_p: 1, min_p: 0 } },
};

// Seconds of processor time that a process has used.
function used(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

async function ask(server, { prompts, more }, round) {
  const before = used(server.pid);
  const begin = performance.now();
  const answers = await Promise.all(Array.from({ length: nSequences }, async (_, i) => {
    const answer = await fetch(`${server.url}/v1/completions`, {
      method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: prompts[i % prompts.length] + '\n', max_tokens: nTokens, ignore_eos: true, seed: 100 * round + i, ...more }),
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(JSON.stringify(body));
    return body;
  }));
  const seconds = (performance.now() - begin) / 1000;
  const sum = (f) => answers.reduce((n, a) => n + (f(a) ?? 0), 0);
  const n = sum((a) => a.usage.completion_tokens);
  return {
    rate: n / seconds, cpuRate: n / (used(server.pid) - before), texts: answers.map((a) => a.choices[0].text),
    guessed: sum((a) => a.timings?.draft_n), accepted: sum((a) => a.timings?.draft_n_accepted),
  };
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

const shared = [model, '--max-running', String(nSequences), '--no-prefix-cache'];
if (options.deterministic) shared.push('--deterministic');
if (options.threads) shared.push('--threads', options.threads);
const guessing = [...shared];
if (options.draft) guessing.push('--draft', options.draft);
if (options.lookup) guessing.push('--lookup');
const servers = { with: await startServer(guessing), without: await startServer(shared) };
let nDifferent = 0;
try {
  for (const [kind, texts] of Object.entries(kinds)) {
    const results = { with: [], without: [] };
    for (let round = -1; round < rounds; round++) { // the first one is not counted
      const order = round % 2 ? ['with', 'without'] : ['without', 'with'];
      const now = {};
      for (const name of order) {
        now[name] = await ask(servers[name], texts, round + 1);
        if (round >= 0) results[name].push(now[name]);
      }
      nDifferent += now.with.texts.filter((text, i) => text !== now.without.texts[i]).length;
    }
    const of = (name, key) => median(results[name].map((r) => r[key]));
    const ratio = (key) => median(results.with.map((r, i) => r[key] / results.without[i][key]));
    const total = (key) => results.with.reduce((n, r) => n + r[key], 0);
    console.log(`${kind.padEnd(6)} ${of('with', 'rate').toFixed(0)} tokens/s with guesses, ${of('without', 'rate').toFixed(0)} without: ${ratio('rate').toFixed(2)}x; `
      + `of processor time ${of('with', 'cpuRate').toFixed(0)} and ${of('without', 'cpuRate').toFixed(0)}: ${ratio('cpuRate').toFixed(2)}x; ${total('accepted')} of ${total('guessed')} guesses were right`);
  }
  console.log(`${nDifferent} texts differ`);
} finally {
  await servers.with.stop();
  await servers.without.stop();
}
if (options.deterministic && nDifferent > 0) process.exit(1);
