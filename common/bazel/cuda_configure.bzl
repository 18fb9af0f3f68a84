"""@cuda: the CUDA Toolkit of CUDA_HOME, CUDA_PATH or /usr/local/cuda; an empty stand-in when there is none
(or with --repo_env=CATCHMENT_CUDA=0). @cuda//:defs.bzl has CUDA_ENABLED and if_cuda()."""

def _impl(ctx):
    home = None
    if ctx.os.environ.get("CATCHMENT_CUDA", "") != "0":
        for c in [ctx.os.environ.get("CUDA_HOME"), ctx.os.environ.get("CUDA_PATH"), "/usr/local/cuda"]:
            if c and ctx.path(c + "/bin/nvcc").exists and ctx.path(c + "/include/cuda_runtime.h").exists:
                home = c
                break
    libdir = None
    if home:
        for l in ["lib64", "targets/x86_64-linux/lib", "lib"]:
            if ctx.path("%s/%s/libcudart_static.a" % (home, l)).exists:
                libdir = "%s/%s" % (home, l)
                break
        if not libdir:
            fail("no libcudart_static.a under " + home)
    ctx.file("defs.bzl", """CUDA_ENABLED = {on}
CUDA_HOME = {home}
CUDA_LIBDIR = {lib}
def if_cuda(if_true, if_false = []):
    return if_true if CUDA_ENABLED else if_false
""".format(on = home != None, home = repr(home), lib = repr(libdir)))
    out = ["package(default_visibility = [\"//visibility:public\"])"]
    if home:
        version = ctx.execute([home + "/bin/nvcc", "--version"]).stdout.strip().split("\n")[-1]
        ctx.symlink(home + "/include", "include")
        out += [
            "# " + version,
            "cc_library(name = \"headers\", hdrs = glob([\"include/*.h\", \"include/*.hpp\", \"include/crt/**\", \"include/vector_types*\"]), includes = [\"include\"])",
            "cc_library(name = \"cudart\", deps = [\":headers\"], linkopts = [\"%s/libcudart_static.a\", \"-ldl\", \"-lrt\", \"-lpthread\"])" % libdir,
            "cc_library(name = \"cublas\", deps = [\":cudart\"], linkopts = [\"-L%s\", \"-l:libcublasLt.so\", \"-l:libcublas.so\", \"-Wl,-rpath,%s\"])" % (libdir, libdir),
        ]
    else:
        out += ["cc_library(name = \"%s\")" % n for n in ["headers", "cudart", "cublas"]]
    ctx.file("BUILD", "\n".join(out) + "\n")

cuda_configure = repository_rule(implementation = _impl, local = True, configure = True,
    environ = ["CUDA_HOME", "CUDA_PATH", "CATCHMENT_CUDA"])
