#!/bin/sh
# Replies held to JSON schemas, validated by ajv: test_schemas.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_schemas.mjs "$@"
