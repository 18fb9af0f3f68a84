#!/usr/bin/env python3
"""Translates PTX, as nvcc makes it of the CUDA layers, to C++ that the emulator beside it executes.

    translate.py FILE.ptx > FILE.cc

Each kernel becomes a function that executes one thread. Its registers are in a struct, so that a thread can
stop at a barrier, let the other threads of its block reach it, and continue. An instruction that is not in
the tables below is an error that names it: a new compiler or a new kernel then needs an entry, with its
meaning from NVIDIA's PTX ISA.
"""

import re
import sys

C_TYPES = {
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "s8": "int8_t",
    "s16": "int16_t",
    "s32": "int32_t",
    "s64": "int64_t",
    "b8": "uint8_t",
    "b16": "uint16_t",
    "b32": "uint32_t",
    "b64": "uint64_t",
    "f32": "float",
    "pred": "bool",
}
BYTES = {"f32": 4, **{f"{sign}{bits}": bits // 8 for sign in "usb" for bits in (8, 16, 32, 64)}}
SPECIAL = {
    f"%{name}.{axis}": f"thread.{field}.{axis}"
    for name, field in (("tid", "index"), ("ntid", "block_size"), ("ctaid", "block"), ("nctaid", "grid_size"))
    for axis in "xy"
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INTEGER_OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "div": "/", "rem": "%"}
FLOAT_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
# By all of the name but the type. The arguments are the source operands.
FLOAT_FUNCTIONS = {
    "add.rz": "AddTowardsZero({0}, {1})",
    "fma.rn": "std::fmaf({0}, {1}, {2})",
    "fma.rm": "FmaDown({0}, {1}, {2})",
    "rcp.rn": "1.0f / {0}",
    "rcp.approx.ftz": "1.0f / {0}",
    "sqrt.rn": "std::sqrt({0})",
    "ex2.approx.ftz": "std::exp2({0})",
    "neg": "-{0}",
    "abs": "std::fabs({0})",
    "max": "std::fmax({0}, {1})",
    "min": "std::fmin({0}, {1})",
    "copysign": "std::copysign({1}, {0})",
    "cvt.sat.f32": "Saturate({0})",
}
# The number of instructions of a GPU that one of PTX becomes, where that is not about one: counted in what
# ptxas makes for sm_90.
INSTRUCTIONS = {
    "div.s32": 20,
    "div.u32": 20,
    "rem.s32": 20,
    "rem.u32": 20,
    "div.s64": 80,
    "rem.s64": 80,
    "div.rn.f32": 10,
    "rcp.rn.f32": 8,
    "sqrt.rn.f32": 8,
}


class TranslationError(Exception):
    pass


def unsigned(kind):
    return C_TYPES[kind].replace("int", "uint").replace("uuint", "uint")


def split_operands(text):
    """Returns the operands between commas that are outside of braces."""
    return [operand.strip() for operand in re.findall(r"(?:\{[^}]*\}|[^,{])+", text)]


class Kernel:
    """One kernel's translation."""

    def __init__(self, name, parameters, body):
        self.name = name
        self.parameter_sizes = [size for _, size in parameters]
        self.parameters = {parameter: index for index, (parameter, _) in enumerate(parameters)}
        self.registers, self.shared, self.shared_bytes, self.barriers = [], {}, 0, 0
        self.statements = []
        # The begin of the basic block, and the instructions that it executes so far.
        self.block_at, self.block_instructions = 0, 0
        for line in body.split("\n"):
            line = line.split("//")[0].strip()
            # cvt.rn.bf16 comes in a block of its own.
            if line.startswith("{") and line.endswith("}"):
                line = line[1:-1].strip()
            if line:
                self.translate(line)
        self.end_block()

    def end_block(self):
        """Lets each basic block count its instructions."""
        if self.block_instructions > 0:
            self.statements.insert(self.block_at, f"activity.instructions += {self.block_instructions};")
        self.block_at, self.block_instructions = len(self.statements), 0

    def translate(self, line):
        if line.startswith("."):
            return self.declare(line)
        if label := re.fullmatch(r"\$(\S+):", line):
            self.end_block()
            self.statements.append(f"{label[1]}:;")
            self.block_at += 1
            return None
        match = re.fullmatch(r"(?:@(!?)%(p\d+)\s+)?(\S+?)(?:\s+(.*))?;", line)
        if not match:
            raise TranslationError(f"cannot read: {line}")
        negated, predicate, name, operands = match.groups()
        self.block_instructions += INSTRUCTIONS.get(name, 1)
        statement = self.instruction(name, split_operands(operands or ""))
        if predicate:
            if name.startswith("bar."):
                raise TranslationError(f"a barrier under a condition: {line}")
            statement = f"if ({negated}r.{predicate}) {{ {statement} }}"
        self.statements.append(statement)
        if name.startswith(("bra", "ret", "bar.")):
            self.end_block()
        return None

    def declare(self, line):
        if match := re.fullmatch(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>;", line):
            kind, prefix, count = match.groups()
            names = ", ".join(f"{prefix}{i}" for i in range(int(count)))
            self.registers.append(f"{C_TYPES[kind]} {names};")
        elif match := re.fullmatch(r"\.shared \.align \d+ \.b8 (\S+)\[(\d+)\];", line):
            self.shared[match[1]] = self.shared_bytes
            self.shared_bytes += (int(match[2]) + 15) // 16 * 16
        elif not line.startswith(".pragma"):
            raise TranslationError(f"unknown directive: {line}")

    def value(self, operand, kind):
        if operand in SPECIAL:
            return SPECIAL[operand]
        if operand.startswith("%"):
            return f"r.{operand[1:]}"
        if operand.startswith("0f"):
            return f"Float(0x{operand[2:]}u)"
        if re.fullmatch(r"-?\d+", operand):
            return f"static_cast<{C_TYPES[kind]}>({operand}LL)"
        if operand in self.shared:
            return f"static_cast<{C_TYPES[kind]}>({self.shared[operand]})"
        if operand in self.parameters:
            return f"reinterpret_cast<uint64_t>(parameters[{self.parameters[operand]}])"
        raise TranslationError(f"unknown operand: {operand}")

    def address(self, operand, space):
        base, offset = re.fullmatch(r"\[([^+\]]+)(?:\+(-?\d+))?\]", operand).groups()
        offset = offset or "0"
        if base in self.parameters:
            return f"parameters[{self.parameters[base]}] + {offset}"
        if base in self.shared:
            return f"thread.shared + {self.shared[base]} + {offset}"
        if space == "shared":
            return f"thread.shared + r.{base[1:]} + {offset}"
        return f"reinterpret_cast<char*>(r.{base[1:]}) + {offset}"

    def instruction(self, name, operands):
        """Returns the statement of one instruction without its condition."""
        parts = name.split(".")
        if name == "ret":
            return "return kEnded;"
        if parts[0] == "bra":
            return f"goto {operands[0][1:]};"
        if name == "bar.sync":
            self.barriers += 1
            return f"return {self.barriers}; case {self.barriers}:;"
        if name == "membar.gl":
            return ""  # accesses happen in their order
        if name == "atom.global.inc.u32":
            return self.increment(operands)
        if parts[0] == "ld":
            return self.load(parts, operands)
        if parts[0] == "st":
            return self.store(parts, operands)
        if parts[0] == "mov" and operands[0].startswith("{"):
            return self.unpack(name, *operands)
        if parts[0] in ("mov", "cvta"):
            return f"r.{operands[0][1:]} = {self.move(parts[-1], *operands)};"
        return f"r.{operands[0][1:]} = {self.expression(parts, operands[1:])};"

    def load(self, parts, operands):
        kind, space = parts[-1], parts[1]
        source = self.address(operands[1], space)
        targets = split_operands(operands[0].strip("{}"))
        recorded = f"RecordRead({source}, {len(targets) * BYTES[kind]}); " if space == "global" else ""
        return recorded + " ".join(
            f"r.{target[1:]} = Load<{C_TYPES[kind]}>({source} + {i * BYTES[kind]});"
            for i, target in enumerate(targets)
        )

    def store(self, parts, operands):
        kind, space = parts[-1], parts[1]
        target = self.address(operands[0], space)
        values = split_operands(operands[1].strip("{}"))
        recorded = f"RecordWrite({target}, {len(values) * BYTES[kind]}); " if space == "global" else ""
        return recorded + " ".join(
            f"Store<{C_TYPES[kind]}>({target} + {i * BYTES[kind]}, {self.value(value, kind)});"
            for i, value in enumerate(values)
        )

    def increment(self, operands):
        """Returns the statement that adds one to a value, or sets it to zero if it has reached the limit."""
        target, address, limit = (
            f"r.{operands[0][1:]}",
            self.address(operands[1], "global"),
            self.value(operands[2], "u32"),
        )
        return (
            f"RecordRead({address}, 4); RecordWrite({address}, 4); {target} = Load<uint32_t>({address}); "
            f"Store<uint32_t>({address}, {target} >= {limit} ? 0 : {target} + 1);"
        )

    def expression(self, parts, sources):
        """Returns what an instruction assigns to its first operand."""
        operation, kind = parts[0], parts[-1]
        values = [self.value(source, kind) for source in sources]
        if operation == "setp":
            return self.compare(parts[1], kind, values)
        if operation == "selp":
            return f"r.{sources[2][1:]} ? {values[0]} : {values[1]}"
        if operation == "cvt":
            return self.convert(parts[1:], sources[0])
        if kind == "f32":
            function = FLOAT_FUNCTIONS.get(".".join(parts[:-1]))
            if function:
                return function.format(*values)
            if operation in FLOAT_OPERATORS and parts[1:-1] in ([], ["rn"]):
                return f"{values[0]} {FLOAT_OPERATORS[operation]} {values[1]}"
        elif kind in C_TYPES:
            return self.integer(parts, values)
        raise TranslationError(f"unknown instruction: {'.'.join(parts)}")

    def unpack(self, name, targets, source):
        """Returns the statement that divides 32 bits into two halves, the lower one first."""
        if name != "mov.b32":
            raise TranslationError(f"unknown instruction: {name} {targets}")
        return " ".join(
            f"r.{target[1:]} = static_cast<uint16_t>({self.value(source, 'b32')} >> {16 * i});"
            for i, target in enumerate(split_operands(targets.strip("{}")))
        )

    def move(self, kind, target, source):
        if source.startswith("{") and kind == "b32":
            low, high = (self.value(part, "b16") for part in split_operands(source.strip("{}")))
            return (
                f"uint32_t{{static_cast<uint16_t>({low})}} | uint32_t{{static_cast<uint16_t>({high})}} << 16"
            )
        value = self.value(source, kind)
        # A move of bits between a register of floats and one of integers.
        if kind == "b32" and source.startswith("%f") and not target.startswith("%f"):
            return f"Bits({value})"
        if kind == "b32" and target.startswith("%f") and not source.startswith(("%f", "0f")):
            return f"Float({value})"
        return value

    @staticmethod
    def compare(comparison, kind, values):
        # A comparison of floats that ends with u is true where one is NaN; the others,
        # ne included, are false.
        unordered = kind == "f32" and comparison not in COMPARISONS and comparison[-1:] == "u"
        operator = COMPARISONS.get(comparison[:-1] if unordered else comparison)
        if operator is None:
            raise TranslationError(f"unknown comparison: {comparison}")
        if kind != "f32":
            first, second = (f"static_cast<{C_TYPES[kind]}>({value})" for value in values)
            return f"{first} {operator} {second}"
        either_is_nan = f"(std::isnan({values[0]}) || std::isnan({values[1]}))"
        combined = f"|| {either_is_nan}" if unordered else f"&& !{either_is_nan}"
        return f"({values[0]} {operator} {values[1]}) {combined}"

    def convert(self, parts, source):
        if parts == ["rn", "f16", "f32"]:
            return f"HalfBits({self.value(source, 'f32')})"
        if parts == ["rn", "bf16", "f32"]:
            return f"Bfloat16Bits({self.value(source, 'f32')})"
        if parts == ["f32", "f16"]:
            return f"FromHalfBits({self.value(source, 'b16')})"
        if parts == ["sat", "f32", "f32"]:
            return FLOAT_FUNCTIONS["cvt.sat.f32"].format(self.value(source, "f32"))
        if parts[:-1] == ["rn", "f32"] and parts[-1] in ("s32", "u32"):
            return f"static_cast<float>(static_cast<{C_TYPES[parts[-1]]}>({self.value(source, parts[-1])}))"
        if len(parts) == 2 and "f32" not in parts and set(parts) <= set(C_TYPES):
            value = f"static_cast<{C_TYPES[parts[1]]}>({self.value(source, parts[1])})"
            return f"static_cast<{C_TYPES[parts[0]]}>({value})"
        raise TranslationError(f"unknown instruction: cvt.{'.'.join(parts)}")

    @staticmethod
    def integer(parts, values):
        operation, kind = parts[0], parts[-1]
        c_type = C_TYPES[kind]
        typed = [f"static_cast<{c_type}>({value})" for value in values]
        if kind == "pred" and operation in INTEGER_OPERATORS:
            return f"{values[0]} {INTEGER_OPERATORS[operation]} {values[1]}"
        if operation == "not":
            return f"!{values[0]}" if kind == "pred" else f"~{typed[0]}"
        if operation in ("max", "min"):
            return f"std::{operation}({typed[0]}, {typed[1]})"
        if operation in ("shl", "shr"):
            # A shift by all bits or more gives 0, or the sign.
            return f"Shift{'Left' if operation == 'shl' else 'Right'}<{c_type}>({values[0]}, {values[1]})"
        # Additions and products wrap around, which is defined for unsigned numbers only.
        wrapped = [f"static_cast<{unsigned(kind)}>({value})" for value in values]
        if operation in ("add", "sub"):
            return f"{wrapped[0]} {INTEGER_OPERATORS[operation]} {wrapped[1]}"
        if operation == "neg":
            return f"-{wrapped[0]}"
        if operation in INTEGER_OPERATORS:
            return f"{typed[0]} {INTEGER_OPERATORS[operation]} {typed[1]}"
        if parts == ["mul", "hi", "u32"]:
            return f"static_cast<uint32_t>(uint64_t{{{typed[0]}}} * {typed[1]} >> 32)"
        if operation in ("mul", "mad") and parts[1] in ("lo", "wide"):
            if parts[1] == "wide":
                wide = "int64_t" if kind.startswith("s") else "uint64_t"
                product = f"static_cast<{wide}>({typed[0]}) * {typed[1]}"
                return product if operation == "mul" else f"{product} + {values[2]}"
            product = f"{wrapped[0]} * {wrapped[1]}"
            return product if operation == "mul" else f"{product} + {wrapped[2]}"
        raise TranslationError(f"unknown instruction: {'.'.join(parts)}")

    def source(self, number):
        registers = "\n  ".join(self.registers)
        statements = "\n    ".join(self.statements)
        return (
            f"// {self.name}\nstruct Registers{number} {{\n  {registers}\n}};\n\n"
            f"int Execute{number}(void* registers, const Thread& thread, char* const* parameters, "
            f"int resume) {{\n"
            f"  auto& r = *static_cast<Registers{number}*>(registers);\n"
            f"  switch (resume) {{\n    case 0:;\n    {statements}\n  }}\n  return kEnded;\n}}\n"
        )

    def entry(self, number):
        sizes = ", ".join(map(str, self.parameter_sizes))
        return (
            f'{{"{self.name}", Execute{number}, sizeof(Registers{number}), {self.shared_bytes}, '
            f"{self.barriers}, {{{sizes}}}}}"
        )


def parse_parameters(text):
    """Returns the name and the size in bytes of each parameter."""
    parameters = []
    for declaration in filter(None, (part.strip() for part in text.split(",\n"))):
        match = re.fullmatch(r"\.param (?:\.align \d+ )?\.(\w+) (\S+?)(?:\[(\d+)\])?", declaration)
        if not match:
            raise TranslationError(f"cannot read the parameter: {declaration}")
        parameters.append((match[2], int(match[3] or BYTES[match[1]])))
    return parameters


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    kernels = []
    for match in re.finditer(r"\.entry (\S+?)\((.*?)\)\s*(?:\.\w+[^{]*)?\{(.*?)\n\}", text, re.DOTALL):
        try:
            kernels.append(Kernel(match[1], parse_parameters(match[2]), match[3]))
        except TranslationError as error:
            sys.exit(f"{sys.argv[1]}: kernel {match[1]}: {error}")
    if len(kernels) != len(re.findall(r"\.entry ", text)):
        sys.exit(f"{sys.argv[1]}: has an .entry that cannot be read")
    print('#include "tests/kernels/cuda/ptx/kernel.h"\n\nnamespace catchment::ptx {\nnamespace {\n')
    for number, kernel in enumerate(kernels):
        print(kernel.source(number))
    entries = ",\n    ".join(kernel.entry(number) for number, kernel in enumerate(kernels))
    if kernels:
        print(f"const KernelTable kTable({{\n    {entries}}});\n")
    print("}  // namespace\n}  // namespace catchment::ptx")


if __name__ == "__main__":
    main()
