#!/bin/sh
# Check that the C files are laid out as .clang-format says. Works on a copy without git too; fails
# if there is nothing to check.
set -eu
cd "$(dirname "$0")/.."

if ! command -v clang-format >/dev/null; then
    echo "format: not checked, clang-format is not installed"
    exit 0
fi
list=$(mktemp)
trap 'rm -f "$list"' EXIT
find . \( -name node_modules -o -name build -o -name '.?*' \) -prune -o -type f -name '*.[ch]' -print |
    sort >"$list"
n=$(wc -l <"$list")
if [ "$n" -eq 0 ]; then
    echo "format: no C files below $PWD" >&2
    exit 1
fi
xargs -d '\n' -n 40 -P "$(nproc)" clang-format --dry-run -Werror <"$list"
echo "format: $n files clean"
