#!/bin/sh
# Coding agents from npm against lace serve: test_agents.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
packages=../agents/node_modules
if [ ! -e $packages/.package-lock.json ]; then
    # A machine that npm has no programs for, or that does not reach the registry, is no failure.
    [ ! -e $packages/.cannot-install ] || CI=
    skip_all "the agents of tests/agents/package.json are not installed"
fi
exec node test_agents.mjs "$@"
