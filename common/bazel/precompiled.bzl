"""precompiled_header(name, src, hdrs, deps): a header that g++ parses once for the whole build; hdrs are other headers
without a library that it includes."""
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _impl(ctx):
    header = ctx.actions.declare_file("precompiled/" + ctx.file.src.basename)
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    compiled = ctx.actions.declare_file(header.basename + ".gch", sibling = header)
    deps = [d[CcInfo].compilation_context for d in ctx.attr.deps]
    defines = depset(transitive = [d.defines for d in deps])
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx, cc_toolchain = toolchain, requested_features = ctx.features, unsupported_features = ctx.disabled_features)

    # g++ takes a precompiled header only where options and macros are those that it was made with.
    variables = cc_common.create_compile_variables(
        feature_configuration = features, cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ["-x", "c++-header"],
        quote_include_directories = depset([".", ctx.bin_dir.path]), preprocessor_defines = defines,
        source_file = ctx.file.src.path, output_file = compiled.path)
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME, variables = variables),
        env = cc_common.get_environment_variables(
            feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME, variables = variables),
        inputs = depset([ctx.file.src] + ctx.files.hdrs, transitive = [toolchain.all_files] + [d.headers for d in deps]),
        outputs = [compiled], mnemonic = "CppPrecompile", progress_message = "Precompiling " + ctx.file.src.short_path)
    own = cc_common.create_compilation_context(
        headers = depset([header, compiled] + ctx.files.hdrs, transitive = [d.headers for d in deps]), defines = defines)
    return [DefaultInfo(files = depset([header, compiled])), CcInfo(compilation_context = own)]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)
