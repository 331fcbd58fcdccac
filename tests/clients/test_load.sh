#!/bin/sh
# lace bench serve against servers that misbehave on purpose: test_load.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_load.mjs "$@"
