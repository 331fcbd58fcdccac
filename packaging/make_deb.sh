#!/bin/sh
# Make Debian's packages of what is built: lace, liblace1, liblace-dev, python3-lace.
#
#   packaging/make_deb.sh VERSION BUILD     (by `make deb`; results in BUILD/deb)
#
# Needs debhelper and dh-python; lintian looks at the result, if it is there. A source package for
# others: copy packaging/debian to debian/ and use dpkg-buildpackage; it builds everything itself.
set -eu
version=$1 b=$2
top=$(pwd)
for tool in dh dh_python3 dpkg-buildpackage; do
    command -v $tool >/dev/null || {
        echo "deb: $tool is missing; apt-get install debhelper dh-python dpkg-dev" >&2
        exit 1
    }
done
out=$top/$b/deb
rm -rf "$out"
tree=$out/lace-$version
mkdir -p "$tree/packaging"
cp -r packaging/debian "$tree/debian"
cp packaging/serve.env "$tree/packaging/"
cp LICENSE "$tree/"
# Only in trees of others is it built again.
cd "$tree"
LACE_BUILT=$top B=$b MAKEFLAGS= MAKELEVEL= dpkg-buildpackage --build=binary --no-sign --no-check-builddeps \
    >"$out/log" 2>&1 || { tail -n 30 "$out/log" >&2; exit 1; }
cd "$out"
rm -rf "$tree"
for package in *.deb; do
    printf '%9s  %s\n' "$(stat -c %s "$package")" "$b/deb/$package"
done
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning -- *.changes && echo "deb: lintian has nothing to say"
fi
