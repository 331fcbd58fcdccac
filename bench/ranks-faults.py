#!/usr/bin/env python3
"""Ranks that are lost while they serve: who notices, how soon, and whether the same command serves again.

    bench/ranks-faults.py [LACE]

Two ranks under mpirun on this machine serve the built-in model with a stream under way. One is killed,
then one is stopped. Each time: the stream ends with an error event, /ready turns red or is gone, the
program ends with a code that says "start again", and then the same command serves again.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

LACE = sys.argv[1] if len(sys.argv) > 1 else 'build/lace'
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
DEADLINE = 3


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def start(port):
    # Open MPI's default: a second between SIGTERM and SIGKILL.
    p = subprocess.Popen(['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', '2', LACE, 'serve', '--port', str(port),
                          '-t', '1', '--rank-timeout', str(DEADLINE)], env=ENV, stderr=subprocess.PIPE, text=True)
    lines = []
    threading.Thread(target=lambda: [lines.append(line) for line in p.stderr], daemon=True).start()
    for _ in range(600):
        if p.poll() is not None:
            sys.exit('lace serve has ended: ' + ''.join(lines))
        try:
            c = http.client.HTTPConnection('127.0.0.1', port, timeout=5)
            c.request('GET', '/ready')
            if c.getresponse().status == 200:
                return p, lines
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit('lace serve is not ready after a minute')


def children(pid):
    """The ranks that mpirun has started, in their order."""
    out = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(pid)], capture_output=True, text=True).stdout
    return [int(x) for x in out.split()]


def stream(port, events):
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    body = json.dumps({'prompt': 'Once upon a time', 'max_tokens': 2000, 'stream': True, 'ignore_eos': True})
    try:
        c.request('POST', '/v1/completions', body, {'Content-Type': 'application/json'})
        for line in c.getresponse():
            events.append((time.time(), line.decode().strip()))
    except OSError as e:
        events.append((time.time(), f'connection: {e}'))


def try_fault(name, number):
    port = free_port()
    p, lines = start(port)
    events = []
    t = threading.Thread(target=stream, args=(port, events), daemon=True)
    t.start()
    while len(events) < 5 and t.is_alive():
        time.sleep(0.05)
    victim = children(p.pid)[1]
    begin = time.time()
    os.kill(victim, number)
    t.join(30)
    ended = events[-1][0] - begin if not t.is_alive() else None
    error = next((line for _, line in events if '"error"' in line), None)
    try:
        p.wait(30)
    except subprocess.TimeoutExpired:
        pass
    if number == signal.SIGSTOP:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait(30)
    said = [line.strip() for line in lines if line.startswith('lace:')]
    print(f'{name}: stream over after {ended and round(ended, 1)} s, error event: {error}')
    print(f'{name}: said {said}, mpirun ended with {p.returncode}')
    ok = ended is not None and error is not None and ended < DEADLINE + 4
    p, _ = start(port)
    print(f'{name}: the same command serves again')
    p.send_signal(signal.SIGTERM)
    p.wait(30)
    return ok


results = [try_fault('killed', signal.SIGKILL), try_fault('stopped', signal.SIGSTOP)]
print('all as expected' if all(results) else 'NOT as expected')
sys.exit(0 if all(results) else 1)
