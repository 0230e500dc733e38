"""gtest's header, which nearly every test begins with, translated once instead of once a test.

g++ takes the translation where a compiler's flags are the ones that it was made with, and the header itself elsewhere.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# As .bazelrc compiles tests (per_file_copt): most of them, and those whose optimised code matters.
FLAGS = {
    "quick": ["-O0", "-U_FORTIFY_SOURCE"],
    "optimised": [],
}

def _precompiled_gtest(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    gtest = ctx.attr.gtest[CcInfo].compilation_context
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "#include \"gtest/gtest.h\"  // IWYU pragma: export\n")
    made = [header]

    # Clang has another format, and refuses a file that it does not know.
    for name, flags in FLAGS.items() if "clang" not in toolchain.compiler else []:
        # g++ looks through a folder of this name for one that fits.
        output = ctx.actions.declare_file("%s.gch/%s" % (header.basename, name))
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            source_file = header.path,
            output_file = output.path,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + flags + ["-x", "c++-header"],
            include_directories = gtest.includes,
            quote_include_directories = gtest.quote_includes,
            system_include_directories = gtest.system_includes,
            preprocessor_defines = gtest.defines,
            use_pic = True,
        )
        ctx.actions.run(
            mnemonic = "PrecompileHeader",
            progress_message = "Precompiling gtest's header (%s)" % name,
            executable = cc_common.get_tool_for_action(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
            ),
            arguments = cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            ),
            env = cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            ),
            inputs = depset([header], transitive = [gtest.headers, toolchain.all_files]),
            outputs = [output],
            execution_requirements = {"no-sandbox": "1"},  # as other compilers' calls
        )
        made.append(output)
    return [
        DefaultInfo(files = depset(made)),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(made))),
    ]

precompiled_gtest = rule(
    implementation = _precompiled_gtest,
    attrs = {
        "gtest": attr.label(mandatory = True, providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
