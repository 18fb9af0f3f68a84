#!/usr/bin/env python3
"""Writes compile_commands.json for clangd and other tools, from what Bazel would run.

    deploy/compile_commands.py [TARGETS ...]        default: //...

Generated headers (protobuf) are there once the targets have been built. Run it again when targets change.
Exit codes: 0 written, 1 Bazel failed (its own words are shown).
"""

import json
import os
import pathlib
import subprocess
import sys

# For g++ alone; clangd does not know them.
GCC_ONLY = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter"}
# The flags that only write dependency files, and g++'s precompiled header, which clangd cannot read: (flag,
# arguments that follow it).
LEFT_OUT = {"-MD": 0, "-MF": 1, "-include": 1}


def bazel(*args: str) -> str:
    result = subprocess.run(["bazel", *args], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{result.stderr}compile_commands: bazel {args[0]} failed")
    return result.stdout


def info(key: str) -> pathlib.Path:
    return pathlib.Path(bazel("info", key).strip())


def source_of(arguments: list[str]) -> str:
    return arguments[arguments.index("-c") + 1]


def clean(arguments: list[str]) -> list[str]:
    """Without what is for g++ or for Bazel alone."""
    kept, skip = [], 0
    for argument in arguments:
        if skip:
            skip -= 1
        elif argument in LEFT_OUT:
            skip = LEFT_OUT[argument]
        elif argument not in GCC_ONLY and not argument.startswith("-frandom-seed="):
            kept.append(argument)
    return kept


def entries(actions: list[dict], workspace: pathlib.Path, execution_root: pathlib.Path) -> list[dict]:
    """One for each source of the project; a source that is compiled twice (for a tool, say) counts once."""
    by_source = {}
    for action in actions:
        source = source_of(action["arguments"])
        if source.startswith(("external/", "bazel-out/")) or source in by_source:
            continue
        path = str(workspace / source)
        arguments = [path if argument == source else argument for argument in clean(action["arguments"])]
        by_source[source] = {"directory": str(execution_root), "file": path, "arguments": arguments}
    return [by_source[source] for source in sorted(by_source)]


def main() -> None:
    targets = sys.argv[1:] or ["//..."]
    workspace = info("workspace")
    query = f'mnemonic("CppCompile", {" + ".join(targets)})'
    # With this option, each source has its own command.
    output = bazel("aquery", query, "--output=jsonproto", "--define=unity=off")
    commands = entries(json.loads(output).get("actions", []), workspace, info("execution_root"))
    path = workspace / "compile_commands.json"
    temporary = path.with_suffix(".json.new")
    temporary.write_text(json.dumps(commands, indent=1) + "\n")
    os.replace(temporary, path)
    print(f"compile_commands: {len(commands)} files in {path}")


if __name__ == "__main__":
    main()
