// Coding agents, as their users install them, do a first turn with a tool call against a real server.
//
// The model is a chain of tokens that the test has written (../scripted_model.mjs): it asks for a tool
// that reads a file, and says the number in the file only if the tool's result has come back to it. All
// else is real: the agent's own request with all its tools, the template, the stream of events, the
// tool that the agent runs, and the second request with what it said. Agents get a home of their own,
// and their way out is a proxy that lets nothing through.
//
// LACE_TRANSCRIPTS names a folder in which a transcript of each turn is left.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { startClosedProxy, startRecorder } from '../recorder.mjs';
import { writeScriptedModel } from '../scripted_model.mjs';
import { startServer } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';

const packages = new URL('../agents/node_modules/', import.meta.url).pathname;
const QUESTION = 'Which number is in note.txt?';
const MODEL = 'scripted';

// The first of these programs that npm had for this machine.
function program(...paths) {
  const found = paths.map((path) => join(packages, path)).find(existsSync);
  return found || skip(`npm has no program for ${process.platform} ${process.arch}`);
}

// ---- The agents ----------------------------------------------------------------------------------

// Each: its program, what it is called with, its settings, the tool that it has, and how it shows text.
const agents = {
  claude: {
    file: () => program(`@anthropic-ai/claude-code-linux-${process.arch}/claude`),
    args: ['-p', QUESTION, '--allowedTools', 'Bash', '--output-format', 'stream-json', '--verbose'],
    env: (url) => ({
      ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: 'none', ANTHROPIC_MODEL: MODEL, ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1', DISABLE_AUTOUPDATER: '1',
    }),
    call: { name: 'Bash', arguments: { command: 'cat note.txt', description: 'Read the note' } },
    route: '/v1/messages', event: '"type":"tool_use"',
  },
  codex: {
    file: () => program(...['linux-x64/vendor/x86_64', 'linux-arm64/vendor/aarch64'].map((at) => `@openai/codex-${at}-unknown-linux-musl/bin/codex`)),
    args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '--disable', 'plugins', '--disable', 'apps', '--json', QUESTION],
    env: () => ({}),
    files: (url) => ({
      '.codex/config.toml': `model = "${MODEL}"\nmodel_provider = "lace"\ncheck_for_update_on_startup = false\n` +
        `[model_providers.lace]\nname = "lace"\nbase_url = "${url}/v1"\nwire_api = "responses"\n[analytics]\nenabled = false\n`,
    }),
    call: { name: 'exec_command', arguments: { cmd: 'cat note.txt' } },
    route: '/v1/responses', event: '"type":"function_call"',
  },
  opencode: {
    file: () => program(`opencode-linux-${process.arch}-baseline/bin/opencode`),
    args: ['run', '--model', `lace/${MODEL}`, '--format', 'json', QUESTION],
    env: () => ({ OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_LSP_DOWNLOAD: '1', OPENCODE_DISABLE_DEFAULT_PLUGINS: '1' }),
    files: (url) => ({
      '.config/opencode/opencode.json': JSON.stringify({
        autoupdate: false, share: 'disabled', permission: 'allow',
        provider: { lace: { npm: '@ai-sdk/openai-compatible', name: 'lace', options: { baseURL: `${url}/v1`, apiKey: 'none' }, models: { [MODEL]: { tool_call: true, limit: { context: 65536, output: 4096 } } } } },
      }),
    }),
    call: { name: 'bash', arguments: { command: 'cat note.txt', description: 'Read the note' } },
    route: '/v1/chat/completions', event: '"tool_calls":[',
  },
};

// ---- A turn --------------------------------------------------------------------------------------

function run(file, args, options, seconds) {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), seconds * 1000);
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => (out += data));
    child.stderr.on('data', (data) => (err += data));
    child.on('error', reject);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ code: code ?? signal, out, err });
    });
  });
}

// The model asks for the tool, and says the number once a result with it is in the conversation.
function writeModel(path, agent, number) {
  writeScriptedModel(path, {
    ask: `I shall read it.\n<tool_call>\n${JSON.stringify(agent.call)}\n</tool_call>`,
    tell: `The note says ${number}.`,
    title: 'A note',
  }, `'tell' if '${number}' in (messages | selectattr('role', 'eq', 'tool') | map(attribute='content') | join(' ')) else 'ask' if tools else 'title'`);
}

function transcript(name, agent, turn) {
  const lines = [`$ ${name} ${agent.args.join(' ')}`, `exit code ${turn.code}, tried to reach: ${turn.wanted.join(' ') || 'nothing'}`];
  for (const call of turn.calls) {
    const body = JSON.parse(call.body);
    const last = (body.messages || body.input).slice(-2);
    lines.push('', `>>> ${call.method} ${call.path} (${call.body.length} bytes, ${body.tools?.length ?? 0} tools); the last two of its messages:`);
    for (const message of last) lines.push(JSON.stringify(message).slice(0, 600));
    lines.push(`<<< ${call.status}`, call.reply.slice(0, 6000));
  }
  return [...lines, '', '--- what the agent printed', turn.out].join('\n');
}

async function firstTurn(name) {
  const agent = agents[name];
  const file = agent.file();
  const dir = mkdtempSync(join(tmpdir(), `lace-${name}-`));
  const number = String(1000 + Math.floor(Math.random() * 9000));
  mkdirSync(join(dir, 'work'));
  writeFileSync(join(dir, 'work/note.txt'), `The number is ${number}.\n`);
  writeModel(join(dir, `${MODEL}.gguf`), agent, number);
  const server = await startServer([join(dir, `${MODEL}.gguf`), '-c', '65536']);
  const recorder = await startRecorder(server.url);
  const proxy = await startClosedProxy();
  try {
    for (const [path, content] of Object.entries(agent.files?.(recorder.url) ?? {})) {
      mkdirSync(dirname(join(dir, 'home', path)), { recursive: true });
      writeFileSync(join(dir, 'home', path), content);
    }
    mkdirSync(join(dir, 'home'), { recursive: true });
    const env = { PATH: process.env.PATH, HOME: join(dir, 'home'), TERM: 'dumb', LANG: 'C.UTF-8', ...agent.env(recorder.url) };
    for (const key of ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY']) env[key] = env[key.toLowerCase()] = proxy.url;
    env.NO_PROXY = env.no_proxy = '127.0.0.1';
    const { code, out, err } = await run(file, agent.args, { cwd: join(dir, 'work'), env }, 100);
    const turn = { code, out, calls: recorder.calls, wanted: [...new Set(proxy.wanted)] };
    if (process.env.LACE_TRANSCRIPTS) writeFileSync(join(process.env.LACE_TRANSCRIPTS, `${name}.txt`), transcript(name, agent, turn));
    if (turn.wanted.length) console.log(`# ${name} wanted to reach ${turn.wanted.join(' ')}, and was not let`);
    for (const call of turn.calls) assert.equal(call.status, 200, `${call.method} ${call.path}: ${call.status} ${call.reply.slice(0, 500)}`);
    assert.equal(code, 0, `${out.slice(-2000)}\n${err.slice(-2000)}`);
    const spoken = turn.calls.filter((call) => call.path.startsWith(agent.route));
    const asked = spoken.findIndex((call) => call.reply.includes(agent.event));
    assert.ok(asked >= 0, 'no call of the tool was streamed');
    assert.ok(spoken.slice(asked + 1).some((call) => call.body.includes(`The number is ${number}.`)), "the tool's result did not come back");
    assert.ok(out.includes(`The note says ${number}.`), out.slice(-2000));
  } finally {
    recorder.stop();
    proxy.stop();
    await server.stop();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

const failed = await runCases({
  claude_code_completes_a_turn_with_a_tool_call: () => firstTurn('claude'),
  codex_completes_a_turn_with_a_tool_call: () => firstTurn('codex'),
  opencode_completes_a_turn_with_a_tool_call: () => firstTurn('opencode'),
});
process.exit(failed ? 1 : 0);
