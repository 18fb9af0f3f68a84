"""Files of other packages in the output folder of this one."""

def _linked_files_impl(ctx):
    links = []
    for file in ctx.files.srcs:
        link = ctx.actions.declare_file(file.short_path)
        ctx.actions.symlink(output = link, target_file = file)
        links.append(link)
    return [DefaultInfo(files = depset(links), runfiles = ctx.runfiles(files = links))]

# Links PACKAGE/SRC in Bazel's output to each of `srcs`, which are named from the workspace's root. A program
# finds them beside itself as soon as it is built, also before Bazel has made a tree of its runfiles.
linked_files = rule(
    implementation = _linked_files_impl,
    attrs = {"srcs": attr.label_list(allow_files = True)},
)
