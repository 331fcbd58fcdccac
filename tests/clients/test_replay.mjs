// Earlier replies stand in prompts as the model wrote them: a session of an agent under real templates,
// which drop reasoning and write calls anew, computes hardly more than what is new in it.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeSession, messagesBefore, TEMPLATES, TOOLS } from '../../bench/agent_sessions.mjs';
import { dataPath } from '../data.mjs';
import { writeScriptedModel } from '../scripted_model.mjs';
import { startServer } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';

const N_TURNS = 12; // the tenth reply goes to the user
const here = mkdtempSync(join(tmpdir(), 'lace-replay-'));
process.on('exit', () => rmSync(here, { recursive: true, force: true }));

// A model that says the replies of a session, under one of the templates.
function writeModel(name, style) {
  const template = dataPath(`templates/${name}.jinja`);
  if (!template) skip('the templates are not there');
  const session = makeSession(style, N_TURNS, 30);
  const byTurn = (value) => Object.fromEntries(session.turns.map((t, i) => [`t${i}`, value(t)]));
  session.path = join(here, `${name}.gguf`);
  writeScriptedModel(session.path, byTurn((t) => t.text), "'t' ~ (messages | selectattr('role', 'equalto', 'assistant') | list | length)",
    { template: session.adapt(readFileSync(template, 'utf8')), controls: session.controls, ends: byTurn((t) => t.end), isReadBack: true });
  return session;
}

async function ask(server, messages, key) {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json', ...(key ? { authorization: `Bearer ${key}` } : {}) },
    body: JSON.stringify({ messages, tools: TOOLS, temperature: 0, max_tokens: 400 }),
  });
  const body = await answer.json();
  assert.ok(answer.ok, JSON.stringify(body));
  const { usage } = body;
  return { message: body.choices[0].message, n: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens, said: usage.completion_tokens };
}

// Tokens that a whole session computes, and that are new in it.
async function run(server, session, sendsReasoning) {
  const sum = { computed: 0, fresh: 0 };
  let before = 0;
  for (let i = 0; i < N_TURNS; i++) {
    const a = await ask(server, messagesBefore(session, i, sendsReasoning));
    const t = session.turns[i];
    if (t.call) assert.deepEqual(JSON.parse(a.message.tool_calls[0].function.arguments), { path: t.call.path, limit: t.call.limit });
    else assert.equal(a.message.content.trim(), t.answer.trim());
    sum.computed += a.n - a.cached;
    sum.fresh += a.n - before;
    before = a.n + a.said;
  }
  return sum;
}

async function withServer(session, args, use) {
  const server = await startServer([session.path, '-c', '16384', '--kv-memory', '256M', '--max-running', '2', '--log-json', ...args]);
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

const cases = {};
for (const [name, style] of TEMPLATES)
  cases[`a_session_under_${name.replace(/\W/g, '_')}_computes_only_what_is_new`] = async () => {
    const session = writeModel(name, style);
    for (const sendsReasoning of [true, false])
      await withServer(session, [], async (server) => {
        const { computed, fresh } = await run(server, session, sendsReasoning);
        assert.ok(computed <= 1.05 * fresh, `${computed} computed, ${fresh} new`);
        const lines = server.output().split('\n').filter((line) => line.includes('"replies":')).map((line) => JSON.parse(line));
        assert.equal(lines.length, N_TURNS - 1);
        for (const line of lines) assert.ok(line.replies_kept === line.replies && line.reused_tokens > 0 && line.reuse_end === 'new', JSON.stringify(line));
      });
  };

cases.a_template_writes_replies_anew_where_that_is_wanted = async () => {
  const session = writeModel(...TEMPLATES[0]);
  await withServer(session, ['--rewrite-replies'], async (server) => {
    const { computed, fresh } = await run(server, session, true);
    assert.ok(computed > 1.2 * fresh, `${computed} computed, ${fresh} new`);
    assert.match(server.output(), /"reuse_end":"differs"/);
  });
};

cases.a_reply_that_was_changed_is_shown_as_it_was_sent = async () => {
  const session = writeModel(...TEMPLATES[0]);
  await withServer(session, [], async (server) => {
    for (let i = 0; i < 3; i++) await ask(server, messagesBefore(session, i));
    const messages = messagesBefore(session, 3);
    messages[2].tool_calls[0].function.arguments = '{"path":"another","limit":1}';
    const first = await ask(server, messagesBefore(session, 0));
    const changed = await ask(server, messages);
    assert.ok(changed.cached <= first.n && changed.cached >= first.n - 2, `${changed.cached} of ${first.n}`);
    const last = server.output().trim().split('\n').at(-1);
    assert.match(last, /"replies":3,"replies_kept":0/);
  });
};

cases.a_key_does_not_find_replies_of_another = async () => {
  const session = writeModel(...TEMPLATES[0]);
  await withServer(session, ['--api-key', 'one,two'], async (server) => {
    for (let i = 0; i < 2; i++) await ask(server, messagesBefore(session, i), 'one');
    const other = await ask(server, messagesBefore(session, 2), 'two');
    assert.equal(other.cached, 0);
    const own = await ask(server, messagesBefore(session, 2), 'one');
    assert.ok(own.n > other.n, 'reasoning is shown to the one who knows it');
  });
};

cases.a_killed_server_leaves_what_it_computed_to_the_next = async () => {
  const session = writeModel(...TEMPLATES[0]);
  const files = ['--cache-dir', join(here, 'pages')];
  const server = await startServer([session.path, '-c', '16384', '--kv-memory', '256M', ...files]);
  for (let i = 0; i < 4; i++) await ask(server, messagesBefore(session, i));
  await new Promise((resolve) => setTimeout(resolve, 300)); // pages are written behind
  await server.stop('SIGKILL');
  await withServer(session, files, async (next) => {
    const a = await ask(next, messagesBefore(session, 4));
    assert.ok(a.cached > 0.9 * a.n, `${a.cached} of ${a.n}`);
    assert.equal(a.message.tool_calls[0].function.name, session.turns[4].call.name);
    assert.match(next.output(), /"replies":4,"replies_kept":4/);
  });
};

cases.reasoning_ends_with_its_budget = async () => {
  const session = writeModel(...TEMPLATES[0]);
  const post = async (server, path, body) => {
    const answer = await fetch(`${server.url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
    return answer.json();
  };
  const messages = messagesBefore(session, 0);
  const whole = session.turns[0].thought;
  await withServer(session, [], async (server) => {
    for (const fields of [{ reasoning_budget: 6 }, { thinking_budget_tokens: 6 }, { reasoning_budget_tokens: 6 }]) {
      const { choices } = await post(server, '/v1/chat/completions', { messages, temperature: 0, ...fields });
      assert.equal(choices[0].reasoning_end, 'budget');
      const thought = choices[0].message.reasoning_content.trim();
      assert.ok(thought.length > 0 && thought.length < whole.length && whole.startsWith(thought), thought);
      assert.ok(!/think>/.test(choices[0].message.content), choices[0].message.content);
    }
    const all = await post(server, '/v1/chat/completions', { messages, temperature: 0, reasoning_budget: 500 });
    assert.ok(all.choices[0].message.reasoning_content.trim() === whole && !('reasoning_end' in all.choices[0]));
    const message = await post(server, '/v1/messages', {
      max_tokens: 100, temperature: 0, system: session.system, messages: messages.slice(1), thinking: { type: 'enabled', budget_tokens: 6 },
    });
    assert.ok(message.content[0].type === 'thinking' && message.content[0].thinking.trim().length < whole.length);
  });
  await withServer(session, ['--reasoning-budget', '6'], async (server) => {
    const { choices } = await post(server, '/v1/chat/completions', { messages, temperature: 0 });
    assert.equal(choices[0].reasoning_end, 'budget');
    assert.match(server.output(), /"reasoning_end":"budget"/);
  });
};

await runCases(cases, { seconds: 120 });
