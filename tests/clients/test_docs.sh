#!/bin/sh
# Every snippet of the documents, run: test_docs.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_docs.mjs "$@"
