#!/usr/bin/env bash
# What somebody has who installs the packages: a fresh Debian, as root and with the network.
#
#   make deb wheel && tests/deploy/try_packages.sh [FOLDER]
#
# Makes a chroot in FOLDER (default build/chroot) by debootstrap, unless it is there, and in it: installs
# the packages by apt, runs lace, reads a manual, completes a word, runs tests of the program and of Python
# against what is installed, installs the wheel where there is no compiler and reads images with it, builds
# the examples by pkg-config, computes on two ranks over MPI, and removes everything again.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${1:-build/chroot}
tests="build/tests/server/test_images build/tests/unit/test_cli_run"
[ "$(id -u)" = 0 ] || { echo "try_packages: debootstrap and chroot need root" >&2; exit 1; }

if [ ! -e "$root/usr/bin/apt-get" ]; then
    echo "== debootstrap into $root"
    debootstrap --variant=minbase bookworm "$root" >"$root.log"
fi
rm -rf "$root/packages"
mkdir -p "$root/packages"
make --no-print-directory $tests build/data/.made
cp build/deb/*.deb build/wheel/*.whl "$root/packages/"
cp -r examples "$root/packages/"
cp models/tales-4m.gguf "$root/packages/model.gguf"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"; ! mountpoint -q "$root/tree" || umount "$root/tree"' EXIT

# This tree, for its tests. It lies inside the root while something looks at it there.
with_tree() {
    mkdir -p "$root/tree"
    mount --bind . "$root/tree"
    inside "$@"
    umount "$root/tree"
    rmdir "$root/tree"
}

inside() {
    echo "== $1"
    shift
    chroot "$root" env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive bash -euo pipefail -c "$1"
}

inside "apt install ./lace_*.deb" 'cd /packages && apt-get update -q >/dev/null &&
    time apt-get install -q -y --no-install-recommends ./lace_*.deb | tail -n 3'
inside "lace run" 'lace run -p "Once upon a time" -n 40 --seed 8; lace --version'
with_tree "the program's tests, on the one that is installed" "apt-get install -q -y --no-install-recommends \
    perl procps >/dev/null 2>&1; cd /tree && LACE_SHARED=none LACE_BIN=/usr/bin/lace scripts/run-tests.pl $tests"
inside "the unit is there, and off" 'test -e /lib/systemd/system/lace.service &&
    ! find /etc/systemd -name "lace.service" | grep . && cat /etc/lace/serve.env'
inside "man lace-run" 'apt-get install -q -y --no-install-recommends man-db >/dev/null 2>&1
    test -e /usr/share/man/man1/lace-run.1.gz || echo "(dpkg leaves manuals out here)"
    man -P cat lace-run | head -n 12'
inside "completion" '. /usr/share/bash-completion/completions/lace
    COMP_WORDS=(lace run --no-d) COMP_CWORD=2; _lace; echo "${COMPREPLY[@]}"'
with_tree "wheel, without a compiler" 'apt-get install -q -y --no-install-recommends python3-venv >/dev/null 2>&1
    ! command -v cc gcc clang || exit 1
    python3 -m venv /packages/venv
    /packages/venv/bin/pip install -q --no-index /packages/*.whl
    /packages/venv/bin/python -c "
import lace
model = lace.Model(\"/packages/model.gguf\")
print(lace.library_path(), model.generate(\"The king\", max_tokens=12, temperature=0))"
    images=/tree/tests/fuzz/corpus/image
    /packages/venv/bin/python /tree/tests/deploy/read_images.py /tree/build/data/golden2/gemma3-vision \
        $images/{rgb.jpg,progressive.jpg,rgb.png,lossy.webp,alpha.webp} \
        -- $images/{cut_rgb.jpg,broken_rgb.png,cut_lossy.webp,bomb.jpg}'
inside "python3-lace" 'cd /packages && apt-get install -q -y ./python3-lace_*.deb ./liblace1_*.deb >/dev/null 2>&1
    python3 -c "
import lace
model = lace.Model(\"/packages/model.gguf\")
print(lace.library_path(), model.embed([\"a\", \"b\"]).shape)"'
with_tree "python3-lace, its tests" 'apt-get install -q -y --no-install-recommends python3-pytest python3-numpy \
        >/dev/null 2>&1
    cd /tree && LACE_SHARED=none PYTHONDONTWRITEBYTECODE=1 python3 -m pytest -q -p no:cacheprovider python/tests'
inside "liblace-dev" 'cd /packages && apt-get install -q -y --no-install-recommends ./liblace-dev_*.deb \
        g++ make libsqlite3-dev pkg-config >/dev/null 2>&1
    cp -r examples outside && make -s -C outside && echo Hello | outside/chat model.gguf | tail -c 100
    make -s -C outside clean && make -s -C outside LINK=static && echo Hello | outside/chat model.gguf | tail -c 100
    ! ldd outside/chat | grep liblace'
inside "lace-mpi" 'cd /packages && apt-get install -q -y --no-install-recommends ./lace-mpi_*.deb >/dev/null 2>&1
    mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 lace run -t 1 -p "Once upon a time" -n 12 --seed 8'
inside "removed again" 'apt-get purge -q -y lace lace-mpi liblace1 liblace-dev python3-lace g++ gcc cpp gcc-12 cpp-12 libsqlite3-dev >/dev/null 2>&1
    apt-get autoremove -q -y >/dev/null 2>&1
    ! find / -xdev -name "*lace*" -not -path "/packages/*" -not -path "/proc/*" -not -path "*place*" \
        -not -path "/var/cache/*" 2>/dev/null | grep -E "/(lib)?lace" '
echo "try_packages: all is well"
