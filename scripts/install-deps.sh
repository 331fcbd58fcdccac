#!/bin/sh
# Install what lace needs and this machine lacks (Debian and its relatives).
#
#   scripts/install-deps.sh          to build and to run `make test`
#   scripts/install-deps.sh --ci     and for .ci/run: the second compiler, sanitizers, formatter, to
#                                    build and run for aarch64, Python's tests, what compares the
#                                    library's interface, Vulkan with a device that runs on
#                                    the processor, and a browser and real clients for
#                                    the server (npm packages, pinned, into tests/node_modules and,
#                                    coding agents of 1 GB, into tests/agents/node_modules)
#
# Says what it does before it does it; does and says nothing if nothing is missing.
set -eu

missing=
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# need PACKAGE COMMAND...: the package is missing if the command fails.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

has_library() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }
has_file() { ls $1; }
# A compiler is only there if it can compile and link.
can_link() { echo 'int main(void) { return 0; }' | "$@" -x c -o "$scratch/program" -; }

need build-essential can_link cc
need build-essential command -v make
need pkg-config command -v pkg-config
need libpcre2-dev has_library libpcre2-8
need libutf8proc-dev has_library libutf8proc
need libjansson-dev has_library jansson
need libevent-dev has_library libevent
need libssl-dev has_library libssl
need libedit-dev has_library libedit
need libcurl4-openssl-dev has_library libcurl
need libjpeg62-turbo-dev has_library libjpeg
need libpng-dev has_library libpng
need libwebp-dev has_library libwebp
need perl command -v prove

if [ "${1:-}" = --ci ]; then
    need clang can_link clang
    # The version of the sanitizers' runtime is the compiler's.
    version=$(clang -dumpversion 2>/dev/null | cut -d. -f1 || true)
    need "libclang-rt-${version:-14}-dev" can_link clang -fsanitize=address
    need clang-format command -v clang-format
    need gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross can_link aarch64-linux-gnu-gcc
    need qemu-user command -v qemu-aarch64
    need nodejs command -v node
    need npm command -v npm
    need chromium command -v chromium
    need prometheus command -v promtool
    need tmux command -v tmux
    need python3-pytest /usr/bin/python3 -c 'import pytest'
    need python3-numpy /usr/bin/python3 -c 'import numpy'
    need abigail-tools command -v abidiff
    need libsqlite3-dev has_library sqlite3
    need glslang-tools command -v glslangValidator
    need spirv-tools command -v spirv-val
    need spirv-cross command -v spirv-cross
    need libvulkan-dev test -e /usr/include/vulkan/vulkan_core.h
    need mesa-vulkan-drivers has_file '/usr/share/vulkan/icd.d/lvp_icd.*json'
    need libopenmpi-dev command -v mpicc
    need openmpi-bin command -v mpirun
    need vulkan-validationlayers has_file '/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json'
fi

# npm's packages of one folder. Nothing is done if they are those of its lock file.
install_packages_of() (
    cd "$(dirname "$0")/../$1"
    [ ! node_modules/.package-lock.json -nt package-lock.json ] || exit 0
    echo "installing: the npm packages of $1/package-lock.json"
    npm ci --silent --no-fund --no-audit --ignore-scripts && touch node_modules/.package-lock.json
)

# After Debian's packages: npm's. Agents that cannot be had here are no failure; their test says so.
install_node_packages() {
    [ "$1" = --ci ] || exit 0
    install_packages_of tests
    if ! install_packages_of tests/agents; then
        agents=$(dirname "$0")/../tests/agents/node_modules
        rm -rf "$agents"
        mkdir -p "$agents"
        touch "$agents/.cannot-install"
        echo "the agents of tests/agents/package.json cannot be installed here; their test is skipped"
    fi
    exit 0
}

missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ' | sed 's/ $//')
[ -n "$missing" ] || install_node_packages "${1:-}"

if ! command -v apt-get >/dev/null; then
    echo "lace needs these packages (Debian's names), and there is no apt-get here to install them:" >&2
    echo "  $missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "these packages are missing; as root: apt-get install $missing" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "installing: $missing"
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
install_node_packages "${1:-}"
