// Stands between a client and a server and keeps what they say; and plays the way out to the net,
// which it closes: what a client tries to reach there is kept, too.

import { createServer, request } from 'node:http';

// record.calls: { method, path, headers, body, status, reply }, in the order of their ends.
export async function startRecorder(target) {
  const calls = [];
  const server = createServer((from, to) => {
    const chunks = [];
    from.on('data', (chunk) => chunks.push(chunk));
    from.on('end', () => {
      const body = Buffer.concat(chunks);
      const on = request(target + from.url, { method: from.method, headers: from.headers }, (answer) => {
        const reply = [];
        to.writeHead(answer.statusCode, answer.headers);
        answer.on('data', (chunk) => {
          reply.push(chunk);
          to.write(chunk);
        });
        answer.on('end', () => {
          calls.push({ method: from.method, path: from.url, headers: from.headers, body: body.toString(), status: answer.statusCode, reply: Buffer.concat(reply).toString() });
          to.end();
        });
      });
      on.on('error', () => to.destroy());
      to.on('close', () => on.destroy());
      on.end(body);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`, calls,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

// A proxy that refuses everything: `wanted` has the addresses.
export async function startClosedProxy() {
  const wanted = [];
  const server = createServer((from, to) => {
    wanted.push(from.url);
    to.writeHead(403).end();
  });
  server.on('connect', (from, socket) => {
    wanted.push(from.url);
    socket.on('error', () => {});
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`, wanted,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
