#!/bin/sh
# Every query of the Grafana dashboard, asked of a real Prometheus. By hand: needs prometheus.
cd "$(dirname "$0")" && . ../need_node.sh
need prometheus prometheus
exec node test_dashboard.mjs "$@"
