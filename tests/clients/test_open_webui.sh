#!/bin/sh
# Requests as Open WebUI sends them: test_open_webui.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_open_webui.mjs "$@"
