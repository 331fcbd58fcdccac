#!/usr/bin/env python3
"""What ranks bring on one machine: the best of several runs in turn, and their ratios to 1 rank x 1 thread.

    bench/ranks-speed.py MODEL [ROUNDS] [LACE]

Ranks wait for each other in every layer: a machine with other work on its cores shows that work, not the ranks.
"""
import csv
import io
import os
import subprocess
import sys

MODEL, ROUNDS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
LACE = sys.argv[3] if len(sys.argv) > 3 else 'build/lace'
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
WAYS = {
    '1 x 1': ([], ['-t', '1']),
    '2 ranks x 1, threads': ([], ['-t', '1', '--ranks', '2']),
    '2 ranks x 1, mpirun': (['mpirun', '--oversubscribe', '--bind-to', 'none', '-n', '2'], ['-t', '1']),
    '1 x 2': ([], ['-t', '2']),
}


def measure(before, options):
    command = [*before, LACE, 'bench', MODEL, '-p', '128', '-n', '24', '-r', '2', '--no-limits', '-o', 'csv', *options]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(' '.join(command) + ': ' + done.stderr)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    return {row['test']: float(row['highest']) for row in rows}


best = {}
for _ in range(ROUNDS):
    for way, (before, options) in WAYS.items():
        for test, speed in measure(before, options).items():
            best[way, test] = max(best.get((way, test), 0), speed)
for way, test in sorted(best, key=lambda x: (x[1], list(WAYS).index(x[0]))):
    print(f'{test:8} {way:22} {best[way, test]:8.2f} tok/s  {best[way, test] / best["1 x 1", test]:5.2f} x')
