#!/bin/sh
# Faults on the hub while lace pulls, 10,000 unless told otherwise: cuts, resets, refusals, lies about
# ranges, lengths and bytes, and kill -9. After each pull every file that has its final name must have
# the hash that the hub lists. Takes about 5 minutes.
#
#   bench/pull-faults.sh [COUNT]
set -eu
cd "$(dirname "$0")/.."
make --no-print-directory build/lace build/tests/unit/test_pull >&2
LACE_FAULTS=${1:-10000} LACE_BIN=build/lace build/tests/unit/test_pull
