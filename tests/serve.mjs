// Starts the real server for a test: `lace serve` on a free port, until stop() is called.

import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:net';

export const lace = process.env.LACE_BIN || new URL('../build/lace', import.meta.url).pathname;

export function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

// null if this lace cannot serve. args: what follows `lace serve`; wanted: a port, if not any.
export async function startServer(args = [], wanted = 0) {
  const help = spawnSync(lace, ['help'], { encoding: 'utf8' });
  if (help.error) throw help.error;
  if (!/^ +serve /m.test(help.stdout)) return null;
  const port = wanted || (await freePort());
  const child = spawn(lace, ['serve', ...args, '--port', String(port)], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  let code = null;
  const ended = new Promise((resolve) => child.on('exit', (c, signal) => {
    code = c ?? signal;
    resolve(code);
  }));
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  const url = `http://127.0.0.1:${port}`;
  for (let i = 0; ; i++) {
    if (code !== null || i > 1200) throw new Error(`lace serve did not start (${code}): ${output}`);
    try {
      if ((await fetch(`${url}/health`)).ok) break;
    } catch {
      // Not yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return {
    url, port, pid: child.pid, output: () => output,
    stop: async (signal = 'SIGTERM') => {
      child.kill(signal);
      return ended;
    },
  };
}
