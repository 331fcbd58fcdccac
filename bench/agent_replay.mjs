// How much an agent's session costs: its prompts are replayed against `lace serve`, and the tokens that
// are computed are compared with those that are new.
//
//     node bench/agent_replay.mjs [--turns 60] [--words 240] [--against /path/to/llama-server]
//
// A scripted model says what the recorded one said (tests/scripted_model.mjs), under real templates, with
// all of lace's own: templates, tokens, the prefix tree. The last rows let templates write replies anew
// (--rewrite-replies), which is what other servers do.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeScriptedModel } from '../tests/scripted_model.mjs';
import { freePort, startServer } from '../tests/serve.mjs';
import { makeSession, messagesBefore, TEMPLATES, TOOLS } from './agent_sessions.mjs';

const option = (name, value) => (process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : value);
const nTurns = Number(option('--turns', 60));
const nWords = Number(option('--words', 240));
const rival = option('--against', null);
const folder = process.env.LACE_TEMPLATES || new URL('../tests/data/templates', import.meta.url).pathname;

async function ask(url, messages) {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages, tools: TOOLS, temperature: 0, max_tokens: 400 }),
  });
  const body = await answer.json();
  if (!answer.ok) throw new Error(JSON.stringify(body));
  return body;
}

// Sums over a session: tokens of prompts, computed, and new (neither seen nor said before).
async function replay(session, url) {
  const sum = { prompt: 0, computed: 0, fresh: 0, longest: 0, wrong: 0 };
  let before = 0;
  for (let i = 0; i < nTurns; i++) {
    const { usage, choices } = await ask(url, messagesBefore(session, i));
    const t = session.turns[i];
    const said = choices[0].message;
    sum.wrong += t.call ? said.tool_calls?.[0]?.function.name !== t.call.name : said.content?.trim() !== t.answer.trim();
    sum.prompt += usage.prompt_tokens;
    sum.computed += usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens;
    sum.fresh += usage.prompt_tokens - before;
    before = usage.prompt_tokens + usage.completion_tokens;
    sum.longest = before;
  }
  return sum;
}

// llama-server with one slot and its defaults, and the model's own template.
async function startRival(model) {
  const port = await freePort();
  const child = spawn(rival, ['-m', model, '-c', '65536', '-np', '1', '--jinja', '--port', String(port)], { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.on('exit', resolve));
  const url = `http://127.0.0.1:${port}`;
  for (let i = 0; !(await fetch(`${url}/health`).catch(() => null))?.ok; i++) {
    if (i > 1200 || child.exitCode !== null) throw new Error(`${rival} did not start`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return { url, stop: () => (child.kill(), ended) };
}

const here = mkdtempSync(join(tmpdir(), 'lace-replay-'));
try {
  let fresh = 0;
  console.log(`${nTurns} turns; computed / new is what must be near 1\n`);
  console.log('template            replies    session   prompts  computed       new  computed/new');
  for (const [name, style] of TEMPLATES) {
    const session = makeSession(style, nTurns, nWords);
    const model = join(here, 'scripted.gguf');
    const scripts = Object.fromEntries(session.turns.map((t, i) => [`t${i}`, t.text]));
    const ends = Object.fromEntries(session.turns.map((t, i) => [`t${i}`, t.end]));
    // The number of the reply that is asked for: of the assistant's messages so far.
    writeScriptedModel(model, scripts, "'t' ~ (messages | selectattr('role', 'equalto', 'assistant') | list | length)", {
      template: session.adapt(readFileSync(join(folder, `${name}.jinja`), 'utf8')), controls: session.controls, ends, isReadBack: true,
    });
    const lace = (...flags) => () => startServer([model, '-c', '65536', '--kv-memory', '1G', '--max-running', '2', ...flags]);
    const ways = [['kept', lace()], ['rewritten', lace('--rewrite-replies')]];
    if (rival) ways.push(['llama', () => startRival(model)]);
    for (const [way, start] of ways) {
      const server = await start();
      const s = await replay(session, server.url);
      await server.stop();
      if (way === 'kept') fresh = s.fresh;
      if (s.wrong) console.log(`${name}: ${s.wrong} replies are not what the script says`);
      console.log(`${name.padEnd(18)}  ${way.padEnd(9)}${String(s.longest).padStart(9)}${String(s.prompt).padStart(10)}${String(s.computed).padStart(10)}${String(fresh).padStart(10)}${(s.computed / fresh).toFixed(3).padStart(14)}`);
    }
  }
} finally {
  rmSync(here, { recursive: true, force: true });
}
