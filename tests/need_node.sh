# For test programs in JavaScript: what they need, or one skipped case that says what is missing. With
# CI=1 a missing tool is a failure. Sourced from the folder of the test.

skip_all() {
    if [ -n "${CI:-}" ]; then
        printf '1..1\nnot ok 1 - %s\n' "$1"
        exit 1
    fi
    printf '1..1\nok 1 # SKIP %s (scripts/install-deps.sh --ci installs it)\n' "$1"
    exit 0
}

# need WHAT COMMAND
need() {
    command -v "$2" >/dev/null || skip_all "$1 is not installed"
}

need node node
[ -e ../node_modules/.package-lock.json ] || skip_all "the packages of tests/package.json are not installed"
if [ -n "${LACE_BIN:-}" ] && [ -e "../../$LACE_BIN" ]; then
    LACE_BIN=$(realpath "../../$LACE_BIN")
    export LACE_BIN
fi
