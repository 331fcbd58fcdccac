// deploy/grafana/lace.json against a real Prometheus that scrapes a real server: every query has data.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, startServer } from '../serve.mjs';
import { runCases } from '../tap.mjs';

const dir = mkdtempSync(join(tmpdir(), 'lace-prometheus-'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const server = await startServer();
const port = await freePort();
const config = readFileSync(new URL('../../deploy/prometheus.yml', import.meta.url), 'utf8')
  .replace('scrape_interval: 5s', 'scrape_interval: 1s').replace('lace:8080', `127.0.0.1:${server.port}`);
const file = join(dir, 'prometheus.yml');
writeFileSync(file, config);
execFileSync('promtool', ['check', 'config', file]);
const prometheus = spawn('prometheus', [`--config.file=${file}`, `--storage.tsdb.path=${dir}/data`, `--web.listen-address=127.0.0.1:${port}`], { stdio: 'ignore' });
const dashboard = JSON.parse(readFileSync(new URL('../../deploy/grafana/lace.json', import.meta.url), 'utf8'));

async function query(expression) {
  const response = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(expression)}`);
  const body = await response.json();
  assert.equal(body.status, 'success', JSON.stringify(body));
  return body.data.result;
}

// Some work for ten seconds, so that rates over the last ones are not empty.
for (const begin = Date.now(); Date.now() - begin < 12000;) {
  const prompt = `Once upon a time there was a king who had a daughter, and she ${'was very good and '.repeat(20)}`;
  await fetch(`${server.url}/v1/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ prompt, max_tokens: 50 }) }).then((r) => r.text());
  await sleep(100);
}

const cases = {};
for (const panel of dashboard.panels) {
  cases[`panel_${panel.title.toLowerCase().replace(/\W+/g, '_')}_has_data`] = async () => {
    for (const target of panel.targets) {
      const result = await query(target.expr.replaceAll('$__rate_interval', '10s').replaceAll('$instance', '.*'));
      assert.ok(result.length > 0, target.expr);
      for (const row of result) assert.ok(Number.isFinite(Number(row.value[1])), `${target.expr}: ${row.value[1]}`);
    }
  };
}
const failed = await runCases(cases);
prometheus.kill();
await server.stop();
rmSync(dir, { recursive: true });
process.exit(failed ? 1 : 0);
