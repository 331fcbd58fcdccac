#!/bin/sh
# Replies held to the schemas of zod's types, parsed by zod: test_zod.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_zod.mjs "$@"
