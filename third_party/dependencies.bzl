"""Every external repository of the workspace, pinned by version and sha256."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("//third_party:debian_servers.bzl", "debian_servers")
load("//third_party:pinned_source.bzl", "pinned_source")

def bazel_repositories():
    """What Bazel itself and the dependencies' own build files load."""

    # Our C++ rules are the native ones; a forwarder saves a download, on every Bazel.
    native.local_repository(name = "rules_cc", path = "third_party/rules_cc")

    if native.bazel_version:
        if native.bazel_version.startswith("4."):
            # abseil names wasm32 and wasm64, which Bazel 4 may not know yet.
            http_archive(
                name = "platforms",
                sha256 = "5308fc1d8865406a49427ba24a9ab53087f17f5266a7aabbfc28823f3916e1ca",
                urls = ["https://github.com/bazelbuild/platforms/releases/download/0.0.6/platforms-0.0.6.tar.gz"],
            )
        http_archive(
            name = "bazel_skylib",
            sha256 = "1c531376ac7e5a180e0237938a2536de0c54d93f5c278634818e0efc952dd56c",
            urls = ["https://github.com/bazelbuild/bazel-skylib/releases/download/1.0.3/bazel-skylib-1.0.3.tar.gz"],
        )
        return

    # Debian's Bazel has no version number and may not download what a released one does: what it
    # needs comes from Debian's packages and, where those do not fit, from third_party/debian.
    native.local_repository(name = "bazel_skylib", path = "/usr/share/bazel/tools/skylib")
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
    native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
    native.local_repository(name = "platforms", path = "third_party/debian/platforms")
    native.local_repository(
        name = "remote_coverage_tools",
        path = "third_party/debian/remote_coverage_tools",
    )

def source_repositories():
    """The libraries we build from source and link statically."""
    pinned_source(
        name = "com_google_absl",
        urls = ["https://github.com/abseil/abseil-cpp/archive/refs/tags/20220623.1.tar.gz"],
        sha256 = "91ac87d30cc6d79f9ab974c51874a704de9c2647c40f6932597329a282217ba8",
        strip_prefix = "abseil-cpp-20220623.1",
        licences = ["LICENSE"],
        debian_archive = "abseil_20220623.1.orig.tar.gz",
        debian_strip_prefix = "abseil-20220623.1",
    )

    pinned_source(
        name = "com_github_jupp0r_prometheus_cpp",
        urls = ["https://github.com/jupp0r/prometheus-cpp/archive/refs/tags/v1.0.1.tar.gz"],
        sha256 = "593e028d401d3298eada804d252bc38d8cab3ea1c9e88bcd72095281f85e6d16",
        strip_prefix = "prometheus-cpp-1.0.1",
        licences = ["LICENSE"],
        debian_archive = "prometheus-cpp_1.0.1.orig.tar.gz",
        overlay = {"//third_party:prometheus_cpp.BUILD": "core/BUILD.bazel"},
    )

    pinned_source(
        name = "zlib",
        urls = [
            "https://github.com/madler/zlib/releases/download/v1.2.13/zlib-1.2.13.tar.gz",
            "https://zlib.net/fossils/zlib-1.2.13.tar.gz",
        ],
        sha256 = "b3a24de97a8fdbc835b9833169501030b8977031bcb54b3b3ac13740f846ab30",
        strip_prefix = "zlib-1.2.13",
        licences = ["LICENSE"],
        debian_archive = "zlib_1.2.13.dfsg.orig.tar.bz2",
        debian_strip_prefix = "zlib-1.2.13.dfsg",
        overlay = {"//third_party:zlib.BUILD": "BUILD.bazel"},
    )

    pinned_source(
        name = "nlohmann_json",
        urls = ["https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz"],
        sha256 = "d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273",
        strip_prefix = "json-3.11.2",
        licences = ["LICENSE.MIT"],
        debian_archive = "nlohmann-json3_3.11.2.orig.tar.gz",
        overlay = {"//third_party:nlohmann_json.BUILD": "BUILD.bazel"},
    )

    # Of the program `pulse` alone: TLS, YAML and bcrypt have no place in a job's process.

    pinned_source(
        name = "boringssl",
        # The branch that carries the generated sources, some months after Debian's revision.
        urls = ["https://github.com/google/boringssl/archive/c00d7ca810e93780bd0c8ee4eea28f4f2ea4bcdc.tar.gz"],
        sha256 = "9dc53f851107eaf87b391136d13b815df97ec8f76dadb487b58b2fc45e624d2c",
        strip_prefix = "boringssl-c00d7ca810e93780bd0c8ee4eea28f4f2ea4bcdc",
        licences = ["src/LICENSE"],
        debian_archive = "android-platform-external-boringssl_13.0.0+r24.orig.tar.xz",
        debian_strip_prefix = "android-platform-external-boringssl-13.0.0+r24",
        overlay = {"//third_party:boringssl.BUILD": "BUILD.bazel"},
    )

    pinned_source(
        name = "yaml_cpp",
        urls = ["https://github.com/jbeder/yaml-cpp/archive/refs/tags/yaml-cpp-0.7.0.tar.gz"],
        sha256 = "43e6a9fcb146ad871515f0d0873947e5d497a1c9c60c58cb102a97b47208b7c3",
        strip_prefix = "yaml-cpp-yaml-cpp-0.7.0",
        licences = ["LICENSE"],
        debian_archive = "yaml-cpp_0.7.0+dfsg.orig.tar.xz",
        overlay = {"//third_party:yaml_cpp.BUILD": "BUILD.bazel"},
    )

    pinned_source(
        name = "libxcrypt",
        urls = ["https://github.com/besser82/libxcrypt/releases/download/v4.4.33/libxcrypt-4.4.33.tar.xz"],
        sha256 = "e87acf9c652c573a4713d5582159f98f305d56ed5f754ce64f57d4194d6b3a6f",
        strip_prefix = "libxcrypt-4.4.33",
        licences = ["LICENSING"],
        debian_archive = "libxcrypt_4.4.33.orig.tar.xz",
        overlay = {
            "//third_party/libxcrypt:libxcrypt.BUILD": "BUILD.bazel",
            "//third_party/libxcrypt:bcrypt.h": "lib/bcrypt.h",
            "//third_party/libxcrypt:crypt-port.h": "lib/crypt-port.h",
        },
    )

    pinned_source(
        name = "protozero",
        urls = ["https://github.com/mapbox/protozero/archive/refs/tags/v1.7.1.tar.gz"],
        sha256 = "27e0017d5b3ba06d646a3ec6391d5ccc8500db821be480aefd2e4ddc3de5ff99",
        strip_prefix = "protozero-1.7.1",
        licences = ["LICENSE.md", "LICENSE.from_folly"],
        debian_licences = ["share/doc/libprotozero-dev/copyright"],
        debian_archive = "libprotozero-dev_1.7.1-1_amd64.deb",
        debian_strip_prefix = "usr",
        overlay = {"//third_party:protozero.BUILD": "BUILD.bazel"},
    )

    # Of tests alone: explores executions under the C++ memory model.
    pinned_source(
        name = "relacy",
        urls = ["https://github.com/dvyukov/relacy/archive/acc09bbe65a1837a08912774c7fed178547514e6.tar.gz"],
        sha256 = "f8e54e14e5c89287a8052293b34c7bf51bf3445dd7090c27fab98604230677b3",
        strip_prefix = "relacy-acc09bbe65a1837a08912774c7fed178547514e6",
        licences = ["LICENSE"],
        debian_licences = ["share/doc/relacy-dev/copyright"],
        debian_archive = "relacy-dev_0.0+git20191025.acc09bb-2_all.deb",
        debian_strip_prefix = "usr",
        overlay = {"//third_party:relacy.BUILD": "BUILD.bazel"},
    )

    pinned_source(
        name = "com_google_googletest",
        urls = ["https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz"],
        sha256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
        strip_prefix = "googletest-release-1.12.1",
        licences = ["LICENSE"],
        debian_archive = "googletest_1.12.1.orig.tar.gz",
        overlay = {"//third_party:googletest.BUILD": "BUILD.bazel"},
    )

    pinned_source(
        name = "com_google_benchmark",
        urls = ["https://github.com/google/benchmark/archive/refs/tags/v1.7.1.tar.gz"],
        sha256 = "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
        strip_prefix = "benchmark-1.7.1",
        licences = ["LICENSE"],
        debian_archive = "benchmark_1.7.1.orig.tar.gz",
    )

def server_repositories():
    """Servers that tests run."""
    debian_servers(name = "debian_servers")
