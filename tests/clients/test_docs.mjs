// The snippets of the documents are run as they stand there: curl against a real server, JavaScript with the real
// packages, commands of lace in a folder that has the files they name. What is not run is said. And what can be checked
// without running is: the chart against its figures, those against the results they come from, paths against the tree.
//
// In indented blocks a command ends at two spaces; what follows is its explanation. Words in capitals stand for
// what a reader fills in, and are filled in here from one table.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  copyFileSync, cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { dataPath } from '../data.mjs';
import { lace, startServer } from '../serve.mjs';
import { runCases, skip } from '../tap.mjs';

const root = new URL('../..', import.meta.url).pathname;
const read = (name) => readFileSync(join(root, name), 'utf8');

// ---- Finding snippets ------------------------------------------------------------------------------------------

// Blocks of ```LANGUAGE.
function fences(text, language) {
  return [...text.matchAll(new RegExp('^```' + language + '\\n([\\s\\S]*?)^```$', 'gm'))].map((m) => m[1]);
}

// Commands of indented blocks that begin with a word: whole, with the lines that a quote or a backslash carries on.
function commands(text, word) {
  const found = [];
  let open = null;
  for (const line of text.split('\n')) {
    if (open !== null) {
      open += '\n' + line.trim();
    } else if (new RegExp(`^    ([A-Z_]+=\\S+ |echo .*\\| )?${word} `).test(line) || line === `    ${word}`) {
      open = line.trim();
    } else {
      continue;
    }
    if (word === 'lace') open = open.split(/ {2,}/)[0];
    const quotes = (open.match(/'/g) || []).length;
    if (quotes % 2 === 1) continue;
    if (open.endsWith('\\')) {
      open = open.slice(0, -1);
      continue;
    }
    found.push(open);
    open = null;
  }
  return found;
}

function bash(script, cwd, environment = {}) {
  return spawnSync('bash', ['-c', script], { cwd, encoding: 'utf8', env: { ...process.env, ...environment }, timeout: 240000 });
}

// ---- The files that commands name ------------------------------------------------------------------------------

let folder;
let server;

function makeFolder() {
  const f16 = dataPath('models/tales-4m-f16.gguf');
  folder = mkdtempSync(join(tmpdir(), 'lace-docs-'));
  const bin = join(folder, 'bin');
  spawnSync('mkdir', [bin, join(folder, 'models')]);
  symlinkSync(resolve(lace), join(bin, 'lace'));
  // Copies: a command that replaces a file goes through a link to what it points to.
  for (const name of ['model-f16.gguf', 'a.gguf', 'b.gguf', 'IN']) copyFileSync(f16, join(folder, name));
  for (const name of ['model.gguf', 'chat-model.gguf', 'models/default.gguf'])
    copyFileSync(join(root, 'models/tales-4m.gguf'), join(folder, name));
  for (const name of ['DIR', 'models/smollm2'])
    cpSync(dataPath('models/tales-4m'), join(folder, name), { recursive: true, dereference: true });
  const text = readFileSync(dataPath('text/test.txt'), 'utf8').slice(0, 60000);
  for (const name of ['calib.txt', 'test.txt', 'held-out.txt', 'TEXT']) writeFileSync(join(folder, name), text);
  writeFileSync(join(folder, 'letter.txt'), 'Dear Ada,\n');
  writeFileSync(join(folder, 'ids.i32'), Buffer.from(new Int32Array([0, 5, 9]).buffer));
  for (const [out, type] of [['model-q4.gguf', 'q4_0'], ['model-q8_0.gguf', 'q8_0'], ['model-s4.gguf', 's4']]) {
    const made = spawnSync(lace, ['quantize', f16, join(folder, out), type], { encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
  }
  const matrix = spawnSync(lace, ['imatrix', f16, '-f', join(folder, 'TEXT'), '-o', join(folder, 'model.imatrix'),
    '--windows', '2'], { encoding: 'utf8' });
  assert.equal(matrix.status, 0, matrix.stderr);
}

// What a reader fills in, and figures that are for larger models than this one.
const filled = [
  [/\bFILE\b/g, 'model.imatrix'], [/\bBYTES\b/g, '5MB'], [/--type TYPE\b/g, '--type q4_k_m'], [/\bRULES\b/g, 'rules.conf'],
  [/--size (3\.0GB|12MB)/g, '--size 5MB'], [/--speed 30\b/g, '--speed 1'], [/--windows 60\b/g, '--windows 2'], [/-c 32768\b/g, '-c 512'],
];

// Commands that need what is not here, and why.
const notRun = [
  [/llama-(batched-)?bench/, 'needs llama.cpp'],
  [/^lace (chat|serve) /, 'waits for a person'],
  [/RULES/, 'needs rules'],
  [/bench \*/, 'needs a folder of models'],
  [/mistral|qwen3|org\/model/i, 'needs a model by that name'],
  [/--device cuda/, 'needs a GPU'],
  [/^lace rerank /, 'needs a reranker'],
  [/^lace pull /, 'needs a network'],
  [/^lace (ps|stop)\b/, 'needs a server at the usual port'],
  [/sql\.gguf/, 'needs an adapter'],
  [/--image /, 'needs a model that sees'],
  [/perplexity tales-26m[ -]/, 'needs a model by that name'],
];

// Each runs in the folder; those of long measurements get a short form of them.
function runCommands(name) {
  const failures = [];
  let n = 0;
  for (const original of commands(read(name), 'lace')) {
    if (notRun.some(([pattern]) => pattern.test(original))) continue;
    let command = original.replaceAll('http://127.0.0.1:8080', server.url).replaceAll('http://127.0.0.1:8081', server.url);
    for (const [pattern, value] of filled) command = command.replace(pattern, value);
    const extra = /^lace bench serve/.test(command) ? ' --requests 2'
      : /^lace bench/.test(command) ? ' -r 1 --no-limits'
        : /^lace fit/.test(command) ? ' --windows 2 --types quick --plain --exchanges 1'
          : /^lace sparsify/.test(command) ? ' --calibrate-windows 4 --uniform'
          : /^lace quantize .*--calibrate/.test(command) && !/--windows/.test(command) ? ' --windows 2'
            : '';
    const force = /^lace (quantize|prune|fit|imatrix|logits|sparsify|convert) /.test(command) && !/--force/.test(command) ? ' --force' : '';
    const begin = Date.now();
    const [left, redirect = ''] = command.split(/(?= > )/);
    const result = bash(left + extra + force + redirect, folder, { PATH: `${join(folder, 'bin')}:${process.env.PATH}` });
    n++;
    if (process.env.LACE_DOCS_TIMES) console.log(`# ${((Date.now() - begin) / 1000).toFixed(1)} s: ${original}`);
    if (result.status !== 0) failures.push(`${original}\n  ${result.stderr || result.error || result.stdout.slice(0, 300)}`);
  }
  assert.equal(failures.length, 0, failures.join('\n'));
  return n;
}

// ---- The chart and the tree --------------------------------------------------------------------------------------

// Rows of a CSV file as objects; lines that begin with # are comments.
function csv(name) {
  const lines = read(name).split('\n').filter((line) => line && !line.startsWith('#'));
  const cells = (line) => [...line.matchAll(/(?:^|,)(?:"([^"]*)"|([^,]*))/g)].map((m) => m[1] ?? m[2]);
  const keys = cells(lines[0]);
  return lines.slice(1).map((line) => Object.fromEntries(cells(line).map((cell, i) => [keys[i], cell])));
}

// The documents that say what is; docs/journal/ says what was.
function documents() {
  return ['README.md', 'CONTRIBUTING.md', ...readdirSync(join(root, 'docs')).filter((f) => f.endsWith('.md')).map((f) => `docs/${f}`)];
}

// ---- The cases -------------------------------------------------------------------------------------------------

const cases = {
  curl_examples_are_answered() {
    const failures = [];
    let n = 0;
    for (const name of ['docs/server-api.md', 'docs/structured-output.md', 'docs/using.md', 'README.md'])
      for (const command of commands(read(name), 'curl')) {
        if (/\/infill/.test(command)) continue; // needs a model with tokens for it; tests/server/test_llama has one
        if (/\/rerank/.test(command)) continue; // needs a reranker; tests/server/test_rerank has one
        if (/huggingface\.co/.test(command)) continue; // needs the network, and fetches 600 MB
        const quick = command.replaceAll('http://127.0.0.1:8080', server.url);
        const result = bash(`curl() { command curl -sS --fail-with-body "$@"; }; ${quick}`, root,
          { U: server.url, J: 'Content-Type: application/json' });
        n++;
        if (result.status !== 0) failures.push(`${name}: ${command}\n  ${result.stdout.slice(0, 300)} ${result.stderr}`);
      }
    assert.equal(failures.length, 0, failures.join('\n'));
    assert(n >= 12, `only ${n} examples were found`);
  },

  javascript_examples_run() {
    const failures = [];
    for (const name of ['docs/server-api.md', 'docs/structured-output.md'])
      for (const code of fences(read(name), 'js')) {
        const file = join(root, 'tests/clients', `.snippet-${process.pid}.mjs`);
        writeFileSync(file, code.replaceAll('http://127.0.0.1:8080', server.url));
        const result = spawnSync('node', [file], { encoding: 'utf8', timeout: 120000 });
        rmSync(file);
        if (result.status !== 0) failures.push(`${name}: ${code}\n  ${result.stderr.slice(0, 600)}`);
      }
    assert.equal(failures.length, 0, failures.join('\n'));
  },

  python_examples_run_or_compile() {
    const python = spawnSync('python3', ['--version']);
    if (python.error) skip('no python3');
    const hasClient = spawnSync('python3', ['-c', 'import openai']).status === 0;
    for (const name of ['docs/server-api.md', 'docs/structured-output.md'])
      for (const code of fences(read(name), 'python')) {
        const source = code.replaceAll('http://127.0.0.1:8080', server.url);
        const result = hasClient ? spawnSync('python3', ['-c', source], { encoding: 'utf8' })
          : spawnSync('python3', ['-c', `compile(${JSON.stringify(source)}, "snippet", "exec")`], { encoding: 'utf8' });
        assert.equal(result.status, 0, `${name}: ${code}\n${result.stderr}`);
      }
    if (!hasClient) skip('compiled, not run: no openai for python3');
  },

  commands_of_using_md_run() {
    assert(runCommands('docs/using.md') >= 25);
  },

  commands_of_the_other_documents_run() {
    runCommands('docs/compression.md');
    runCommands('docs/performance.md');
    runCommands('README.md');
  },

  the_chart_is_what_the_script_makes_of_the_figures() {
    if (spawnSync('python3', ['--version']).error) skip('no python3');
    const result = spawnSync('python3', [join(root, 'bench/chart.py'), '--check'], { encoding: 'utf8' });
    assert.equal(result.status, 0, result.stderr);
  },

  the_figures_of_the_chart_are_in_the_results() {
    const rows = csv('bench/results/speed.csv');
    assert(rows.length >= 10);
    for (const row of rows) {
      const found = csv(`bench/results/${row.file}`).find((r) => r.model === row.model && r.test === row.test &&
        (r.program ?? 'lace') === 'lace' && Number(r.tokens_per_second) === Number(row.lace));
      assert(found, `${row.file} has no row of ${row.model}, ${row.test} with ${row.lace} tokens a second`);
      if (found.llama_cpp) assert.equal(Number(found.llama_cpp), Number(row.llama_cpp), row.label);
      const ratio = found.ratio ? Number(found.ratio) : row.lace / row.llama_cpp;
      assert(Math.abs(ratio - row.ratio) < 1e-4, `${row.label}: the ratio is ${ratio}, not ${row.ratio}`);
    }
  },

  // `backend/cpu/tiles.h` in a document is a file whose path ends so. Links lead to files, too.
  paths_in_documents_exist() {
    const files = spawnSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).stdout.split('\n');
    if (files.length < 100) skip('not a git checkout');
    const failures = [];
    let n = 0;
    for (const name of documents()) {
      const text = read(name);
      for (const [, path] of text.matchAll(/`([\w./-]+\.(?:c|h|cu|cuh|def|mjs|py|csv|txt))`/g)) {
        if (/^_|^utils\.c$|^modeling_|^\.\.\./.test(path)) continue; // of the reader, or made up
        n++;
        if (!files.some((f) => f === path || f.endsWith(`/${path}`))) failures.push(`${name}: ${path}`);
      }
      for (const [, path] of text.matchAll(/\]\(([\w./-]+)(?:#[\w-]+)?\)/g)) {
        n++;
        if (!existsSync(join(root, name, '..', path))) failures.push(`${name}: (${path})`);
      }
    }
    assert.equal(failures.length, 0, failures.join('\n'));
    assert(n >= 60, `only ${n} paths were found`);
  },

  // The lines of code that adding-a-model.md shows of an architecture are those of its file.
  the_example_architecture_is_the_file() {
    const plain = (code) => code.replace(/\/\*.*?\*\//g, '').replace(/\s+/g, ' ').trim();
    const file = plain(read('src/model/arch_olmo2.c'));
    const part = read('docs/adding-a-model.md').split('\n## ').find((text) => text.startsWith('4. '));
    const lines = part.split('\n').filter((line) => line.startsWith('    ')).map(plain).filter(Boolean);
    assert(lines.length >= 20, `only ${lines.length} lines were found`);
    assert.deepEqual(lines.filter((line) => !file.includes(line)), []);
  },

  // Kernels of all levels but `plain` sum in one order; those of other machines have orders of their own.
  the_story_of_the_readme_is_the_program_s() {
    if (process.arch !== 'x64' || process.env.LACE_CPU === 'plain') skip('the story is that of x86-64');
    const [, command, story] = /^\$ build\/lace (.*)\n((?:.+\n)+)```$/m.exec(read('README.md'));
    const result = bash(`${lace} ${command} --device cpu`, root);
    const words = (text) => text.trim().split(/\s+/).join(' ');
    assert.equal(words(result.stdout), words(story));
  },

  // A line has at most 101 characters there; rows of tables and pictures are one line each.
  the_readme_has_no_long_lines() {
    const long = read('README.md').split('\n').filter((line) => line.length > 101 && !/^[|!]/.test(line));
    assert.deepEqual(long, []);
  },

  // The text that tokenize prints for the built-in model stands in the document.
  printed_results_are_those_of_the_program() {
    const shown = /\$ lace tokenize models\/default.gguf "([^"]*)"\n    (\[[^\]]*\])/.exec(read('docs/using.md'));
    const result = spawnSync(lace, ['tokenize', join(root, 'models/default.gguf'), shown[1]], { encoding: 'utf8' });
    assert.equal(result.stdout.trim(), shown[2]);
  },
};

server = await startServer([join(root, 'models/tales-4m.gguf'), '-c', '512']);
let failed = 1;
try {
  failed = await runCases(cases, {
    seconds: 600,
    before: (name) => { if (name.startsWith('commands') && !folder) makeFolder(); },
  });
} finally {
  await server.stop();
  if (folder) rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
