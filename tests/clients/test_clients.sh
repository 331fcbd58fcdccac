#!/bin/sh
# Real clients from npm against lace serve: test_clients.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_clients.mjs "$@"
