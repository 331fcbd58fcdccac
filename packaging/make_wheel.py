#!/usr/bin/env python3
"""Make a wheel of the Python package with the shared library in it, by the standard library alone.

    packaging/make_wheel.py build/python build/bundled/liblace.so.1 build/wheel

Refuses a library that would not run elsewhere: it may need the C library and nothing else, must not
say where to look for others, and shows the names of lace.h only. Its name says which glibc it needs.
"""
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import zipfile

ALLOWED = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.\d|ld-linux.*\.so\.\d")
METADATA = """\
Metadata-Version: 2.1
Name: lace
Version: {version}
Summary: Language models on this machine
License: MIT
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
"""


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_library(path):
    """The oldest glibc that has what the library needs, as (2, 34)."""
    dynamic = tool("readelf", "-dW", path)
    for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
        if not ALLOWED.fullmatch(needed):
            sys.exit(f"wheel: {path} needs {needed}, which other machines may not have")
    if re.search(r"RPATH|RUNPATH|TEXTREL", dynamic):
        sys.exit(f"wheel: {path} has a search path or relocations in its text")
    for line in tool("nm", "-D", "--defined-only", path).splitlines():
        name = line.split()[-1].split("@")[0]
        if not name.startswith(("lace_", "LACE_")):
            sys.exit(f"wheel: {path} shows {name}")
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", tool("objdump", "-T", path))
    return max((int(a), int(b)) for a, b in found)


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main(package, library, folder):
    glibc = check_library(library)
    with open(os.path.join(package, "lace", "_abi.py"), encoding="utf-8") as f:
        version = re.search(r'VERSION = "(.*)"', f.read()).group(1)
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    files = {}
    for name in sorted(os.listdir(os.path.join(package, "lace"))):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(package, "lace", name), "rb") as f:
                files["lace/" + name] = f.read()
    with open(library, "rb") as f:
        files["lace/" + os.path.basename(library)] = f.read()
    info = f"lace-{version}.dist-info/"
    files[info + "METADATA"] = METADATA.format(version=version).encode()
    files[info + "WHEEL"] = ("Wheel-Version: 1.0\nGenerator: lace\nRoot-Is-Purelib: false\n"
                             f"Tag: {tag}\n").encode()
    with open("LICENSE", "rb") as f:
        files[info + "LICENSE"] = f.read()
    record = "".join(record_line(name, data) for name, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"lace-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, glibc {glibc[0]}.{glibc[1]} or newer")


if __name__ == "__main__":
    main(*sys.argv[1:])
