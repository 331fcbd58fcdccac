#!/bin/sh
# Two replicas behind a real HAProxy, restarted one after the other under load. By hand: needs haproxy.
cd "$(dirname "$0")" && . ../need_node.sh
need haproxy haproxy
exec node test_replicas.mjs "$@"
