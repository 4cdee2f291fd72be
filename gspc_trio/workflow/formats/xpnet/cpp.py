"""Modules of xpnet in C++: what is compiled around the body of one, and how values come to it and back.

The body becomes a function with the ports as its arguments: input ports as constant references, others as
references. Around it stands a function that a program can call with bytes: values one after another, numbers
as the machine has them with the lowest byte first, texts behind their length, structs field by field.
"""

from __future__ import annotations

import re
import struct as packing
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gspc_trio.workflow.formats.in_tasks.native import ENTRY, RELEASE, CppSource, address_of
from gspc_trio.workflow.formats.xpnet.modules import ModuleError, Signature
from gspc_trio.workflow.formats.xpnet.types import ValueType
from gspc_trio.workflow.formats.xpnet.values import XpnetValue, saying

_IN_CPP = {
    "control": "gspc_trio::control",
    "bool": "bool",
    "int": "int",
    "long": "long",
    "uint": "unsigned int",
    "ulong": "unsigned long",
    "float": "float",
    "double": "double",
    "char": "char",
    "string": "std::string",
}
"""Kind -> type in C++, of those that modules in C++ may have."""

_PACKED = {
    "bool": "<?",
    "int": "<i",
    "long": "<q",
    "uint": "<I",
    "ulong": "<Q",
    "float": "<f",
    "double": "<d",
}

_FLAGS = re.compile(
    r"-(?:[IDULl].+|O[0-3sg]?|g[0-3]?|W(?!a,|p,|l,)[\w=+-]*|Wl,[\w,=.:/$+-]+|std=[\w+]+|pthread|fopenmp|m[\w=.-]+"
    r"|f(?!plugin|dump|profile|save|callgraph|stack-usage|use-ld)[\w=-]+|pedantic|isystem|I|L)|[\w./+][\w./+-]*"
)
"""Flags of a compiler that a net may ask for: none of these runs a program or writes another file."""

_INCLUDE = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
_FOREIGN = re.compile(
    r'^\s*#\s*include\s*[<"]((?:gspc|we|fhg|drts|sdpa|util-generic|pnetc|iml|gpi-space)/[^>"]+)', re.MULTILINE
)
"""Headers that come with GPI-Space."""

_SHIM = """\
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>

namespace gspc_trio
{
  struct control {};
  static_assert (sizeof (long) == 8 && sizeof (int) == 4, "numbers of other sizes");

  class reader
  {
  public:
    reader (unsigned char const* data, std::size_t size) : _at (data), _end (data + size) {}
    template<typename T> void take (T& value)
    {
      static_assert (std::is_arithmetic<T>::value, "a number");
      std::memcpy (&value, next (sizeof (T)), sizeof (T));
    }
    void take (std::string& value)
    {
      std::uint64_t size;
      std::memcpy (&size, next (8), 8);
      value.assign (reinterpret_cast<char const*> (next (size)), size);
    }
    void take (control&) {}
  private:
    unsigned char const* next (std::size_t size)
    {
      if (std::size_t (_end - _at) < size) { throw std::runtime_error ("arguments are missing"); }
      unsigned char const* there (_at);
      _at += size;
      return there;
    }
    unsigned char const* _at;
    unsigned char const* _end;
  };

  class writer
  {
  public:
    template<typename T> void put (T const& value)
    {
      static_assert (std::is_arithmetic<T>::value, "a number");
      data.append (reinterpret_cast<char const*> (&value), sizeof (T));
    }
    void put (std::string const& value)
    {
      std::uint64_t const size (value.size());
      data.append (reinterpret_cast<char const*> (&size), 8);
      data.append (value);
    }
    void put (control const&) {}
    std::string data;
  };

  inline void give (std::string const& data, unsigned char** result, std::size_t* size)
  {
    *result = static_cast<unsigned char*> (std::malloc (data.size() + 1));
    if (!*result) { std::abort(); }
    std::memcpy (*result, data.data(), data.size());
    *size = data.size();
  }

  static thread_local char const* volatile running (nullptr);

  inline void say (char const* text) { if (::write (2, text, std::strlen (text)) < 0) {} }

  inline void crashed (int number)
  {
    std::signal (number, SIG_DFL);
    if (running)
    {
      say ("Fatal error: ");
      say (number == SIGSEGV ? "Segmentation fault" : number == SIGABRT ? "Aborted"
          : number == SIGFPE ? "Floating-point exception" : number == SIGBUS ? "Bus error"
          : "Illegal instruction");
      say (" in ");
      say (running);
      say ("\\n");
    }
    std::raise (number);
  }

  class watched
  {
  public:
    explicit watched (char const* name)
    {
      struct sigaction action;
      std::memset (&action, 0, sizeof (action));
      action.sa_handler = &crashed;
      action.sa_flags = SA_NODEFER | SA_ONSTACK;
      for (int one (0); one < 5; ++one) { ::sigaction (signals()[one], &action, &_before[one]); }
      running = name;
    }
    ~watched()
    {
      running = nullptr;
      for (int one (0); one < 5; ++one) { ::sigaction (signals()[one], &_before[one], nullptr); }
    }
    watched (watched const&) = delete;
  private:
    static int const* signals()
    {
      static int const all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
      return all;
    }
    struct sigaction _before[5];
  };
}
"""


class CppBody(Struct, frozen=True):
    """A module in C++, as a net has it.

    Attributes:
        module: its name.
        signature: of its function.
        inputs, outputs: type of each input and output port of the signature; one may be both.
        buffers: each buffer of the signature, and whether it is read-only.
        code: the body.
        path, line: where that begins.
        includes: headers.
        compiler_flags, linker_flags: as written.
    """

    module: str
    signature: Signature
    inputs: Mapping[str, ValueType]
    outputs: Mapping[str, ValueType]
    code: str
    path: str
    line: int
    includes: tuple[str, ...] = ()
    compiler_flags: tuple[str, ...] = ()
    linker_flags: tuple[str, ...] = ()
    buffers: Mapping[str, bool] = {}

    @property
    def inputs_and_buffers(self) -> tuple[str, ...]:
        """What is passed, in the order in which the library takes it."""
        return (*self.inputs, *self.buffers)

    def refusals(self) -> list[str]:
        """Return why this cannot be compiled here."""
        found = [
            f"port {name!r} is {kind}, which modules in C++ have not"
            for name, kind in {**self.inputs, **self.outputs}.items()
            if not _is_flat(kind)
        ]
        headers = (f'#include "{name}"' for name in self.includes)
        foreign = _FOREIGN.findall("\n".join((*headers, self.code)))
        found += [f"it needs GPI-Space's own header {name}" for name in foreign]
        flags = (*self.compiler_flags, *self.linker_flags)
        found += [f"the flag {flag!r} is not taken" for flag in flags if not _FLAGS.fullmatch(flag)]
        return found

    def source(self) -> CppSource:
        """Return what is compiled."""
        structs = {kind.name: kind for kind in (*self.inputs.values(), *self.outputs.values()) if kind.fields}
        parts = [
            *(f"#include <{name}>" for name in self.includes),
            _SHIM,
            *(_struct(kind) for kind in structs.values()),
            self._function(),
            self._entry(),
        ]
        text = "\n".join(parts) + "\n"
        headers = bool(self.includes) or _INCLUDE.search(self.code) is not None
        return CppSource(self.module, text, headers, self.compiler_flags, self.linker_flags)

    @property
    def written(self) -> tuple[str, ...]:
        """Output ports in the order in which their values come back."""
        return tuple(self.outputs)

    def _function(self) -> str:
        """Return the function of the module with its body."""
        result = _cpp_type(self.outputs[self.signature.returned]) if self.signature.returned else "void"
        arguments = []
        for name in self.signature.parameters:
            if name in self.buffers:
                arguments.append(f"void {'const' if self.buffers[name] else ''}* {name}")
                arguments += [f"std::size_t {size}" for size in self._sizes(name)]
            elif name in self.outputs:
                arguments.append(f"{_cpp_type(self.outputs[name])}& {name}")
            else:
                arguments.append(f"{_cpp_type(self.inputs[name])} const& {name}")
        return (
            f"__attribute__ ((noinline)) static {result} {self.signature.name} ({', '.join(arguments)})\n{{\n"
            f"#line {self.line} {_literal(self.path)}\n{self.code}\n"
            f"#line 1 {_literal(f'{self.path} (around the module {self.module})')}\n}}"
        )

    def _sizes(self, buffer: str) -> list[str]:
        """Return the name of the argument with the size of a buffer, unless something else has that name."""
        name = f"{buffer}_size"
        return [] if name in (*self.inputs, *self.outputs, *self.buffers) else [name]

    def _entry(self) -> str:
        """Return the function that takes bytes."""
        names = dict.fromkeys((*self.inputs, *self.outputs))
        kinds = {**self.outputs, **self.inputs}
        declared = "".join(f"    {_cpp_type(kinds[name])} {name}{{}};\n" for name in names)
        taken = "".join(f"    {one}\n" for name in self.inputs for one in _each("in.take", name, kinds[name]))
        put = "".join(f"    {one}\n" for name in self.outputs for one in _each("out.put", name, kinds[name]))
        for name in self.buffers:
            declared += f"    std::uint64_t {name}_at_ (0), {name}_bytes_ (0);\n"
            taken += f"    in.take ({name}_at_); in.take ({name}_bytes_);\n"
        given = []
        for name in self.signature.parameters:
            given.append(f"reinterpret_cast<void*> ({name}_at_)" if name in self.buffers else name)
            given += [f"{name}_bytes_" for _ in self._sizes(name)] if name in self.buffers else []
        call = f"::{self.signature.name} ({', '.join(given)});"
        returned = self.signature.returned
        return f"""\
extern "C" int {ENTRY}
  (unsigned char const* data_, std::size_t size_, unsigned char** result_, std::size_t* result_size_)
{{
  std::string failure_;
  try
  {{
    gspc_trio::reader in_ (data_, size_);
    gspc_trio::writer out_;
{declared}{taken.replace("in.take", "in_.take")}\
    {{
    gspc_trio::watched watched_ ({_literal(f"module {self.module} ({self.path}:{self.line})")});
    {f"{returned} = " if returned else ""}{call}
    }}
{put.replace("out.put", "out_.put")}\
    gspc_trio::give (out_.data, result_, result_size_);
    return 0;
  }}
  catch (std::exception const& error_) {{ failure_ = error_.what(); }}
  catch (...) {{ failure_ = "an exception that says nothing"; }}
  gspc_trio::give (failure_, result_, result_size_);
  return 1;
}}

extern "C" void {RELEASE} (unsigned char* data_) {{ std::free (data_); }}"""


def _literal(text: str) -> str:
    """Return a text as C++ writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _is_flat(kind: ValueType) -> bool:
    """Return whether a module in C++ may have such a port."""
    if kind.kind != "struct":
        return kind.kind in _IN_CPP
    return bool(kind.name) and all(field.kind in _IN_CPP for _, field in kind.fields)


def _cpp_type(kind: ValueType) -> str:
    return kind.name if kind.kind == "struct" else _IN_CPP[kind.kind]


def _struct(kind: ValueType) -> str:
    fields = " ".join(f"{_cpp_type(field)} {name};" for name, field in kind.fields)
    return (
        f"struct {kind.name} {{ {fields} }};\n"
        f"namespace pnetc {{ namespace type {{ namespace {kind.name} {{ using ::{kind.name}; }} }} }}"
    )


def _each(call: str, name: str, kind: ValueType) -> list[str]:
    """Return a call for a value, or for each field of a struct."""
    if kind.kind != "struct":
        return [f"{call} ({name});"]
    return [f"{call} ({name}.{field});" for field, _ in kind.fields]


class CppTask(Struct, eq=False):
    """What a task of a module in C++ runs.

    Attributes:
        name: of the module, for messages.
        function: bytes of the arguments -> bytes of the results; of a library.
        inputs: name of each input port, in the order in which the task gets their values.
        passed: name and type of what the function gets; no type: it is a buffer.
        returned: name and type of the output ports, in the order in which they come back.
        outputs: name of each output port.
    """

    name: str
    function: Callable[[bytes], bytes]
    inputs: tuple[str, ...]
    passed: tuple[tuple[str, ValueType | None], ...]
    returned: tuple[tuple[str, ValueType], ...]
    outputs: tuple[str, ...]

    def __call__(self, *values: XpnetValue) -> dict[str, XpnetValue]:
        """Return output port -> value.

        Raises:
            ModuleError: a char is none of C++.
            Exception: whatever the library raises.
        """
        given = dict(zip(self.inputs, values, strict=True))
        try:
            data = b"".join(
                _placed(given[name]) if kind is None else _packed(given[name], kind)
                for name, kind in self.passed
            )
        except ValueError as error:
            raise ModuleError(f"module {self.name}: {error}") from None
        found = _unpacked(self.function(data), self.returned)
        return {name: found[name] if name in found else given[name] for name in self.outputs}


def _placed(view: memoryview) -> bytes:
    """Return where a buffer lies, and how large it is."""
    return packing.pack("<QQ", address_of(view), len(view))


def _packed(value: XpnetValue, kind: ValueType) -> bytes:
    match kind.kind:
        case "control":
            return b""
        case "struct":
            return b"".join(_packed(value[name], field) for name, field in kind.fields)
        case "string":
            data: bytes = value.encode("utf-8", "surrogateescape")
            return len(data).to_bytes(8, "little") + data
        case "char":
            if ord(value) > 127:
                raise ValueError(f"{value!r} is no char of C++: it takes more than a byte")
            return bytes([ord(value)])
        case _:
            return packing.pack(_PACKED[kind.kind], value)


def _unpacked(data: bytes, kinds: Iterable[tuple[str, ValueType]]) -> dict[str, XpnetValue]:
    """Return name -> value of what stands one after another."""
    at = 0

    def read(kind: ValueType) -> XpnetValue:
        nonlocal at
        match kind.kind:
            case "control":
                return None
            case "struct":
                return {name: saying(read(field), field) for name, field in kind.fields}
            case "string":
                begin = at + 8
                at = begin + int.from_bytes(data[at:begin], "little")
                return data[begin:at].decode("utf-8", "surrogateescape")
            case "char":
                at += 1
                return chr(data[at - 1])
            case _:
                (value,) = packing.unpack_from(_PACKED[kind.kind], data, at)
                at += packing.calcsize(_PACKED[kind.kind])
                return value

    return {name: read(kind) for name, kind in kinds}


def split_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Return single flags of what a net has written in one element or several."""
    return tuple(flag for written in flags for flag in written.split())
