"""@system: libraries of the Debian packages, found with pkg-config. Their headers are in /usr/include, which
Bazel's C++ toolchain treats as built in, so a target is only its link options. A missing package fails with
its name."""

_LIBRARIES = {
    # target: (pkg-config modules, Debian package)
    "absl": ([
        "absl_base",
        "absl_cord",
        "absl_flat_hash_map",
        "absl_status",
        "absl_statusor",
        "absl_str_format",
        "absl_strings",
        "absl_time",
    ], "libabsl-dev"),
    "crypto": (["libcrypto"], "libssl-dev"),
    "glog": (["libglog"], "libgoogle-glog-dev"),
    "gmock": (["gmock"], "libgmock-dev"),
    "grpc++": (["grpc++"], "libgrpc++-dev"),
    "gtest": (["gtest"], "libgtest-dev"),
    "gtest_main": (["gmock_main"], "libgmock-dev"),
    "jpeg": (["libjpeg"], "libjpeg62-turbo-dev"),
    "json": (["nlohmann_json"], "nlohmann-json3-dev"),
    "prometheus": (["prometheus-cpp-core"], "prometheus-cpp-dev"),
    "protobuf": (["protobuf"], "libprotobuf-dev"),
    "ssl": (["libssl"], "libssl-dev"),
    "zlib": (["zlib"], "zlib1g-dev"),
}

# Libraries without a pkg-config file: (header, link option, Debian package).
_PLAIN = {
    "dnnl": ("dnnl.hpp", "-ldnnl", "libdnnl-dev"),
    "hdf5": ("hdf5/serial/hdf5.h", "-lhdf5_serial", "libhdf5-dev"),
}

_TOOLS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "grpc_python_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

def _missing(what, package):
    fail("%s is not on this machine. Run deploy/setup.sh, or: apt-get install %s" % (what, package))

def _keep_last(flags):
    """Without repetitions; the last of each stays, since libraries come after those that need them."""
    seen, out = {}, []
    for flag in reversed(flags):
        if flag not in seen:
            seen[flag] = True
            out.append(flag)
    return list(reversed(out))

def _pkg_config(ctx, pkg_config, option, modules, package):
    result = ctx.execute([pkg_config, option] + modules)
    if result.return_code != 0:
        _missing("pkg-config module " + " ".join(modules), package)
    return result.stdout.strip().split(" ")

def _impl(ctx):
    pkg_config = ctx.which("pkg-config") or _missing("pkg-config", "pkg-config")
    out = ["package(default_visibility = [\"//visibility:public\"])"]
    for name, (modules, package) in _LIBRARIES.items():
        libs = [f for f in _pkg_config(ctx, pkg_config, "--libs", modules, package) if f.startswith("-l")]
        defines = [f[2:] for f in _pkg_config(ctx, pkg_config, "--cflags", modules, package) if f.startswith("-D")]
        linkopts = ["-Wl,--push-state,--as-needed"] + _keep_last(libs) + ["-Wl,--pop-state"] if libs else []
        out.append("cc_library(name = %r, linkopts = %r, defines = %r)  # %s" % (name, linkopts, defines, package))
    for name, (header, linkopt, package) in _PLAIN.items():
        if not ctx.path("/usr/include/" + header).exists:
            _missing(header, package)
        out.append("cc_library(name = %r, linkopts = [%r])  # %s" % (name, linkopt, package))
    for tool, package in _TOOLS.items():
        ctx.symlink(ctx.which(tool) or _missing(tool, package), tool)
    out.append("exports_files(%r)" % list(_TOOLS.keys()))
    ctx.file("BUILD", "\n".join(out) + "\n")

system_libs = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = ["PKG_CONFIG_PATH", "PATH"],
)
