#!/bin/sh
# lace chat from a pipe and in a terminal (tmux): test_chat.mjs.
cd "$(dirname "$0")" && . ../need_node.sh
exec node test_chat.mjs "$@"
