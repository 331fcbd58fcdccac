#!/bin/sh
# The steps of deploy/Dockerfile in a plain Debian root, without Docker. As root:
#
#   debootstrap --variant=minbase bookworm /tmp/root
#   tests/deploy/try_dockerfile.sh /tmp/root
#
# Builds in a copy of this tree inside the root, then starts the program there as a user without
# rights, asks it through the image's health check, and stops it.
set -eu
root=${1:?a Debian root is needed}
here=$(cd "$(dirname "$0")/../.." && pwd)
port=18080

echo "== build stage: install-deps.sh, make release"
rm -rf "$root/src"
mkdir "$root/src"
git -C "$here" archive HEAD | tar -x -C "$root/src"
chroot "$root" sh -c 'cd /src && scripts/install-deps.sh && make release'

echo "== last stage: the program alone, as user 10001"
chroot "$root" sh -c 'id lace 2>/dev/null || useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin lace'
install -m 755 "$root/src/build/release/lace" "$root/usr/local/bin/lace"
ls -l "$root/usr/local/bin/lace"
chroot --userspec=10001 "$root" /usr/local/bin/lace serve --host 0.0.0.0 --port $port &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT

# The check of the image, with this port.
check=$(sed -n 's/.*CMD \["bash", "-c", "\(.*\)"\]$/\1/p' "$here/deploy/Dockerfile" | sed "s/8080/$port/; s/\\\\\\\\/\\\\/g")
healthy=
for i in 1 2 3 4 5 6 7 8 9 10; do
    if chroot --userspec=10001 "$root" bash -c "$check" 2>/dev/null; then
        healthy=yes
        break
    fi
    sleep 1
done
[ "$healthy" ] || { echo "the health check does not pass"; exit 1; }
echo "== the health check passes"
kill $pid
wait $pid
echo "== SIGTERM ends it with code 0"
