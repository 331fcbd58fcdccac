#!/usr/bin/env python3
"""Write python/lace's declarations from lace.h, so that the two cannot differ.

    scripts/make_python_abi.py include/lace.h OUT.py

Understands the C that lace.h is written in: typedefs of structs, enums and functions, prototypes, and
the list of statuses. Anything else is an error that names the line.
"""
import re
import sys

SCALARS = {
    "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint", "float": "c_float",
    "double": "c_double", "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32",
    "int64_t": "c_int64", "uint64_t": "c_uint64", "uint8_t": "c_uint8", "void": None,
}


class Header:
    """The declarations of a header, as lines of Python."""

    def __init__(self, source):
        self.constants, self.structs, self.opaque = [], [], []
        self.callbacks, self.functions = [], []
        self.names = dict(SCALARS)  # a C type to its ctypes expression
        self.statuses = re.findall(r"X\((\w+), (-?\d+), \"([^\"]*)\"\)", source)
        self.version = re.search(r'#define LACE_VERSION "([^"]*)"', source).group(1)
        text = re.sub(r"/\*.*?\*/", " ", source, flags=re.S)
        text = re.sub(r"^#.*?(?<!\\)$", "", re.sub(r"\\\n", " ", text), flags=re.M)
        text = re.sub(r'extern "C" \{', "", text)
        for statement in split(text):
            self.read(" ".join(statement.split()))

    def read(self, s):
        """One declaration."""
        if not s or s == "}" or re.fullmatch(r"struct \w+", s):
            return
        for pattern, function in (
            (r"typedef enum (\w+) \{.*LACE_STATUS_LIST.*\} \w+", self.read_statuses),
            (r"(?:typedef )?enum (\w* ?)\{(.*)\}( \w+)?", self.read_enum),
            (r"typedef struct (\w+) \{(.*)\} \w+", self.read_struct),
            (r"typedef struct (\w+) \w+", self.read_opaque),
            (r"typedef (\w+) (\w+)", self.read_alias),
            (r"typedef (.+?)\(\*(\w+)\)\((.*)\)", self.read_callback),
            (r"([\w \*]+?)(lace_\w+)\((.*)\)", self.read_function),
        ):
            match = re.fullmatch(pattern, s)
            if match:
                function(*match.groups())
                return
        raise SystemExit(f"make_python_abi: cannot read: {s}")

    def read_statuses(self, name):
        self.names[name] = "c_int"

    def read_enum(self, name, body, _):
        if name.strip():
            self.names[name.strip()] = "c_int"
        value = -1
        for item in filter(None, (part.strip() for part in body.split(","))):
            key, _, given = (part.strip() for part in item.partition("="))
            value = int(given, 0) if given else value + 1
            self.constants.append(f"{key.removeprefix('LACE_')} = {value}")

    def read_opaque(self, name):
        self.names.setdefault(name, "Opaque")

    def read_alias(self, old, new):
        self.names[new] = self.names[old]

    def read_callback(self, result, name, arguments):
        self.names[name] = class_name(name)
        self.callbacks.append((class_name(name), self.function_type(result, arguments)))

    def read_struct(self, name, body):
        rows = []
        for field in filter(None, (f.strip() for f in body.split(";"))):
            rows.extend(self.fields(field))
        self.names[name] = class_name(name)
        for i, (field, kind) in enumerate(rows[:-1]):  # bytes that no zero ends
            if kind == "c_char_p" and rows[i + 1] == ("n_bytes", "c_size_t"):
                rows[i] = (field, "c_void_p")
        lines = "".join(f'        ("{field}", {kind}),\n' for field, kind in rows)
        self.structs.append((class_name(name), lines, [kind for _, kind in rows]))

    def fields(self, field):
        """The names and types of one declaration of a struct."""
        function = re.fullmatch(r"(.+?)\(\*(\w+)\)\((.*)\)", field)
        if function:
            result, name, arguments = function.groups()
            return [(name, self.function_type(result, arguments))]
        base, names = re.fullmatch(r"((?:const |struct )*\w+(?: \*const)?) ?(.*)", field).groups()
        rows = []
        for item in names.split(","):
            stars, name, count = re.fullmatch(r"((?:\*| const)*) ?(\w+)(?:\[(\w+)\])?",
                                              item.strip()).groups()
            kind = self.type_of(base + stars)
            rows.append((name, f"{kind} * {count}" if count else kind))
        return rows

    def read_function(self, result, name, arguments):
        kinds, given = ", ".join(self.argument_types(arguments)), str(self.type_of(result))
        if "size_t *n_bytes" in arguments:  # bytes that no zero ends
            kinds = kinds.replace("POINTER(c_char_p)", "POINTER(c_void_p)")
            given = given.replace("c_char_p", "c_void_p")
        self.functions.append(f'    "{name}": ({given}, [{kinds}]),\n')

    def function_type(self, result, arguments):
        return f"CFUNCTYPE({', '.join([str(self.type_of(result)), *self.argument_types(arguments)])})"

    def argument_types(self, arguments):
        if arguments.strip() == "void":
            return []
        kinds = []
        for one in cut(arguments):
            function = re.fullmatch(r"(.+?)\(\*\w+\)\((.*)\)", one)
            if function:
                kinds.append(self.function_type(*function.groups()))
            else:
                kinds.append(self.type_of(re.fullmatch(r"(.*?)\w+", one).group(1)))
        return kinds

    def type_of(self, c_type):
        """The ctypes expression of a type such as "const char *const *"."""
        words = re.sub(r"\b(const|struct)\b", " ", c_type).replace("*", " * ").split()
        name, depth = words[0], words.count("*")
        kind = self.names.get(name, "Opaque" if name.startswith("lace_") else name)
        if depth and kind == "Opaque" or kind is None and depth:
            kind, depth = "c_void_p", depth - 1
        elif depth and kind == "c_char":
            kind, depth = "c_char_p" if "const" in c_type else "POINTER(c_char)", depth - 1
        for _ in range(depth):
            kind = f"POINTER({kind})"
        return kind


def split(text):
    """The declarations of a text, which end in a semicolon outside of braces."""
    depth, begin = 0, 0
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c == ";" and depth == 0:
            yield text[begin:i]
            begin = i + 1


def cut(arguments):
    """The arguments of a function, which commas separate outside of parentheses."""
    depth, begin = 0, 0
    for i, c in enumerate(arguments + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            yield arguments[begin:i].strip()
            begin = i + 1


def class_name(name):
    return "".join(part.capitalize() for part in name.removeprefix("lace_").split("_"))


def in_order(header):
    """Callbacks and structs, each behind those that it is made of."""
    left = [(name, None, kind, [kind]) for name, kind in header.callbacks]
    left += [(name, rows, None, kinds) for name, rows, kinds in header.structs]
    waiting = {name for name, *_ in left}
    while left:
        for item in left:
            used = {word for kind in item[3] for word in re.findall(r"\w+", kind)}
            if not used & (waiting - {item[0]}):
                break
        left.remove(item)
        waiting.discard(item[0])
        yield item


def write(header, out):
    out.write('"""The declarations of lace.h; made by scripts/make_python_abi.py."""\n')
    out.write("from ctypes import *  # noqa: F403\n\n")
    out.write(f'VERSION = "{header.version}"\n\n')
    out.write("".join(line + "\n" for line in header.constants))
    out.write("\nSTATUSES = {\n")
    for name, value, text in header.statuses:
        out.write(f'    {value}: ("{name}", "{text}"),\n')
    out.write("}\n")
    for name, rows, kind, _ in in_order(header):
        if rows is None:
            out.write(f"\n{name} = {kind}\n")
        else:
            out.write(f"\n\nclass {name}(Structure):\n    _fields_ = [\n{rows}    ]\n\n")
    out.write("\nFUNCTIONS = {\n" + "".join(header.functions) + "}\n")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        made = Header(source.read())
    with open(sys.argv[2], "w", encoding="utf-8") as target:
        write(made, target)
