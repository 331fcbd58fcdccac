// lace chat, as a program in a pipe and as a person in a terminal sees it.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dataPath } from '../data.mjs';
import { lace } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';

const dir = mkdtempSync(join(tmpdir(), 'lace-chat-'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function chat(input, ...args) {
  const r = spawnSync(lace, ['chat', ...args], { input, encoding: 'utf8' });
  return { code: r.status, out: r.stdout, err: r.stderr };
}

// The small model with a chat template of its own, as a Hugging Face directory.
function modelWith(template) {
  const source = dataPath('models/tales-4m');
  const target = mkdtempSync(join(dir, 'model-'));
  cpSync(source, target, { recursive: true, dereference: true });
  const path = join(target, 'tokenizer_config.json');
  const config = existsSync(path) ? JSON.parse(readFileSync(path)) : {};
  writeFileSync(path, JSON.stringify({ ...config, chat_template: template }));
  return target;
}

const PLAIN = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

// ---- A terminal ----------------------------------------------------------------------------------

const socket = `lace-test-${process.pid}`;

async function terminal(args, play) {
  try {
    execFileSync('tmux', ['-V']);
  } catch {
    skip('tmux is not installed');
  }
  const tmux = (...words) => execFileSync('tmux', ['-L', socket, ...words], { encoding: 'utf8' });
  tmux('new-session', '-d', '-x', '90', '-y', '50', `env XDG_STATE_HOME=${dir}/state LC_ALL=C.UTF-8 ${lace} chat ${args}; echo ENDED; sleep 60`);
  const t = {
    keys: (...keys) => tmux('send-keys', ...keys),
    screen: () => tmux('capture-pane', '-p', '-S', '-500'),
    until: async (pattern) => {
      for (let i = 0; i < 300; i++) {
        const screen = t.screen();
        if (pattern.test(screen)) return screen;
        await sleep(100);
      }
      throw new Error(`${pattern} did not appear:\n${t.screen()}`);
    },
  };
  try {
    await play(t);
  } finally {
    tmux('kill-server');
  }
}

const failed = await runCases({
  async pipe_prints_the_answer_alone() {
    const r = chat('Once upon a time\n', '--temp', '0', '-n', '20');
    const same = spawnSync(lace, ['run', '-p', 'Once upon a time', '-n', '20', '--temp', '0', '--no-display-prompt'], { encoding: 'utf8' });
    assert.equal(r.code, 0, r.err);
    assert.equal(r.out, same.stdout);
    assert.equal(r.err, '');
  },

  async each_line_is_a_message_and_the_seed_repeats() {
    const a = chat('The king\nThe queen\n', '--seed', '5', '-n', '16');
    const b = chat('The king\nThe queen\n', '--seed', '5', '-n', '16');
    assert.equal(a.out, b.out);
    assert.ok(a.out.split('\n').length >= 3);
  },

  async lines_can_be_joined() {
    chat(`"""\nfirst\nsecond\n"""\n/save ${dir}/joined.json\n`, '-n', '4');
    assert.equal(JSON.parse(readFileSync(`${dir}/joined.json`))[0].content, 'first\nsecond');
    chat(`third\\\nfourth\n/save ${dir}/joined.json\n`, '-n', '4');
    assert.equal(JSON.parse(readFileSync(`${dir}/joined.json`))[0].content, 'third\nfourth');
  },

  async conversation_is_saved_loaded_and_goes_on() {
    const first = chat(`Once upon a time\n/save ${dir}/talk.json\nThe end\n`, '--temp', '0', '-n', '12');
    const saved = JSON.parse(readFileSync(`${dir}/talk.json`));
    assert.deepEqual(saved.map((m) => m.role), ['user', 'assistant']);
    const second = chat(`/load ${dir}/talk.json\nThe end\n`, '--temp', '0', '-n', '12');
    assert.ok(first.out.endsWith(second.out));
  },

  async template_of_the_model_makes_the_prompt() {
    const model = modelWith(PLAIN);
    const r = chat('A question\n', model, '--temp', '0', '-n', '12', '--system', 'Be brief.');
    const same = spawnSync(lace, ['run', model, '--raw', '-p', '[system] Be brief.\n[user] A question\n[assistant]', '-n', '12', '--temp', '0', '--no-display-prompt'], { encoding: 'utf8' });
    assert.equal(r.code, 0, r.err);
    assert.equal(r.out.trim(), same.stdout.trim());
  },

  async reasoning_is_not_part_of_the_answer() {
    const r = chat('A question\n', modelWith(`${PLAIN}<think>\n`), '--temp', '0', '-n', '12');
    assert.equal(r.code, 0, r.err);
    assert.equal(r.out, '');
    const shown = chat('A question\n', modelWith(`${PLAIN}<think>\n`), '--temp', '0', '-n', '12', '--show-tags');
    assert.ok(shown.out.length > 10);
  },

  async too_long_a_conversation_is_refused_with_both_numbers() {
    const r = chat(`${'word '.repeat(300)}\n`, '-c', '64');
    assert.equal(r.code, 1);
    assert.match(r.err, /^lace: the conversation has \d{3} tokens, the context 64: .*\n$/);
  },

  async full_context_ends_the_answer() {
    const r = chat('Once upon a time\n/stats\n', '-c', '32', '-n', '-1', '--seed', '1');
    assert.equal(r.code, 0, r.err);
    assert.match(r.out, /of 32 tokens of the context/);
  },

  async mistakes_are_explained() {
    writeFileSync(`${dir}/bad.json`, '{"a": 1}');
    for (const [input, pattern] of [['/nothing\n', /unknown command \/nothing/], [`/load ${dir}/none.json\n`, /none\.json/], [`/load ${dir}/bad.json\n`, /expected a list of messages/],
      ['/save\n', /needs a file/], ['/regen\n', /nothing to answer/], [Buffer.from([0x61, 0xff, 0x0a]), /UTF-8/]]) {
      const r = chat(input);
      assert.equal(r.code, 1);
      assert.match(r.err, pattern);
      assert.equal(r.err.split('\n').length, 2);
    }
  },

  async save_replaces_conversations_only() {
    writeFileSync(`${dir}/notes.txt`, 'mine');
    const r = chat(`Once\n/save ${dir}/notes.txt\n`, '-n', '4');
    assert.equal(r.code, 1);
    assert.match(r.err, /notes\.txt exists and is not a conversation/);
    assert.equal(readFileSync(`${dir}/notes.txt`, 'utf8'), 'mine');
  },

  async interrupt_stops_the_answer_and_not_the_program() {
    await terminal('--seed 3 -n 900', async (t) => {
      await t.until(/continues the text/);
      t.keys('Once upon a time', 'Enter');
      await t.until(/time\n.{20}/s);
      t.keys('C-c');
      await t.until(/\[stopped\]|\[cut; -n says how long\]|\[context full\]/);
      t.keys('/stats', 'Enter');
      await t.until(/1 answer,/);
      t.keys('C-d');
      await t.until(/ENDED/);
    });
  },

  async lines_are_edited_and_remembered() {
    await terminal('-n 3', async (t) => {
      await t.until(/^>/m);
      t.keys('/stast', 'BSpace', 'BSpace', 'ts', 'Enter');
      await t.until(/last answer/);
      t.keys('grüße', 'BSpace', 'Enter');
      await t.until(/\[cut; -n says how long\]/);
      t.keys(`/save ${dir}/utf8.json`, 'Enter');
      await t.until(/saved 2 messages/);
      assert.equal(JSON.parse(readFileSync(`${dir}/utf8.json`))[0].content, 'grüß');
      t.keys('C-d');
      await t.until(/ENDED/);
    });
    await terminal('-n 3', async (t) => {
      await t.until(/^>/m);
      t.keys('Up', 'Up', 'Up', 'Enter');
      await t.until(/> \/stats\nlast answer/);
      t.keys('/quit', 'Enter');
      await t.until(/ENDED/);
    });
  },

  async mistake_is_told_and_the_conversation_goes_on() {
    await terminal('-n 3', async (t) => {
      await t.until(/^>/m);
      t.keys('/save /nowhere/at/all.json', 'Enter');
      await t.until(/all\.json: .*\n>/);
      t.keys('/frobnicate', 'Enter');
      await t.until(/unknown command \/frobnicate/);
      t.keys('/bye', 'Enter');
      const screen = await t.until(/ENDED/);
      assert.doesNotMatch(screen, /lace: /);
    });
  },

  async typed_text_and_the_shell_behind_it_have_no_colour() {
    await terminal('-n 3', async (t) => {
      await t.until(/^>/m);
      t.keys('hello there', 'Enter');
      await t.until(/\[cut; -n says how long\]\n>/);
      t.keys('/quit', 'Enter');
      await t.until(/ENDED/);
      const raw = execFileSync('tmux', ['-L', socket, 'capture-pane', '-p', '-e'], { encoding: 'utf8' });
      assert.match(raw, /\x1b\[36m(\x1b\[49m)?>\x1b\[0m(\x1b\[[34]9m)* hello there\n/);
      assert.match(raw.slice(raw.lastIndexOf('/quit')), /^\/quit\n+ENDED/);
    });
  },

  async full_context_is_told_at_the_terminal() {
    const model = modelWith(PLAIN);
    await terminal(`${model} -n 12 -c 40 --ignore-eos`, async (t) => {
      await t.until(/^>/m);
      for (let i = 1; i < 5; i++) {
        t.keys(`hello ${i}`, 'Enter');
        await t.until(new RegExp(`hello ${i}\\n[^]*\\[cut; -n says how long\\][^]*\\n> ?\\n`));
      }
      assert.match(t.screen(), /\[the context is full: 2 older messages were dropped\]/);
    });
  },

  async reasoning_is_dimmed() {
    const model = modelWith(`${PLAIN}<think>\n`);
    await terminal(`${model} -n 12 --temp 0`, async (t) => {
      await t.until(/^>/m);
      t.keys('hello', 'Enter');
      await t.until(/\[cut; -n says how long\]/);
      const raw = execFileSync('tmux', ['-L', socket, 'capture-pane', '-p', '-e'], { encoding: 'utf8' });
      const after = raw.slice(raw.indexOf('hello'));
      assert.match(after.split('\n')[1], /\x1b\[2m/);
    });
  },
});
rmSync(dir, { recursive: true });
process.exit(failed ? 1 : 0);
