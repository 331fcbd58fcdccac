#!/usr/bin/env python3
"""Read an image of each kind with the package lace that is installed: a library that carries its own
decoders must have them whole.

    read_images.py MODEL_WITH_TOWER IMAGE... [-- IMAGE_THAT_IS_BROKEN...]
"""
import ctypes
import sys

import lace
from lace import _library


def main(folder, images):
    good, broken = images, []
    if "--" in images:
        good, broken = images[:images.index("--")], images[images.index("--") + 1:]
    with lace.Model(folder) as model:
        tower = _library.make(_library.lib.lace_tower_open, model._handle, None, None)
        for path in good:
            image = create(tower, path)
            print(f"{path}: {_library.lib.lace_image_n_tokens(image)} rows")
            _library.lib.lace_image_free(image)
        for path in broken:
            try:
                create(tower, path)
            except lace.LaceError as error:
                print(f"{path}: {error}")
            else:
                sys.exit(f"{path}: was read, though it is broken")
        _library.lib.lace_tower_close(tower)


def create(tower, path):
    with open(path, "rb") as file:
        data = file.read()
    return _library.make(_library.lib.lace_image_create, tower, ctypes.c_char_p(data), len(data))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
