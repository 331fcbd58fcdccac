#!/bin/sh
# Sessions of an agent, whose earlier replies are not computed again: test_replay.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_replay.mjs "$@"
