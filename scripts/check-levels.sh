#!/bin/sh
# Check that src/backend/cpu/level.h explains each macro that it gives to templates, and that it
# does not compile for an unknown level, for none, or when a macro is missing from a level's block.
set -eu
cd "$(dirname "$0")/.."

header=src/backend/cpu/level.h
cc=${CC:-cc}
case $($cc -dumpmachine) in
x86_64*) level=avx512vnni flags="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c" ;;
aarch64*) level=neon flags= ;;
*) level=plain flags= ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "levels: $*" >&2
    failed=1
}

# compiles FILE [FLAG...]: whether a template that includes only this header would.
compiles() {
    file=$1
    shift
    $cc -std=c17 -Isrc -Iinclude $flags "$@" -fsyntax-only -x c "$file" 2>/dev/null
}

compiles $header -DLEVEL=$level || fail "$header does not compile with LEVEL=$level"
! compiles $header || fail "$header compiles without LEVEL"
! compiles $header -DLEVEL=nosuch || fail "$header compiles with an unknown LEVEL"

macros=$(sed -n 's/^#define \(LEVEL_[A-Z_]*\) .*/\1/p' $header | grep -v '^LEVEL_NAME$' | sort -u)
n=0
for macro in $macros; do
    n=$((n + 1))
    sed '/\*\//q' $header | grep -q "$macro\>" || fail "$header does not explain $macro"
    case $level-$macro in
    *-LEVEL_EXPAND) continue ;; # only some levels have it
    *-LEVEL_DOT) continue ;;    # levels without products of bytes have none
    plain-LEVEL_BYTES | plain-LEVEL_DENSE_ROWS) ;;
    plain-* | neon-LEVEL_FEW) continue ;;
    esac
    grep -v "^#define $macro " $header >"$work/level.h"
    ! compiles "$work/level.h" -DLEVEL=$level || fail "$header compiles without $macro"
done
[ $failed = 0 ] || exit 1
echo "levels: $n macros are explained and asked for"
