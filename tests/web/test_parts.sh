#!/bin/sh
# The page in Chromium: test_parts.mjs, or one skipped case that says what is missing.
cd "$(dirname "$0")" && . ../need_node.sh
need chromium "${CHROMIUM:-chromium}"
exec node test_parts.mjs "$@"
