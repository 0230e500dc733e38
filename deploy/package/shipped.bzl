"""What of third_party/dependencies.bzl is linked into what the package ships."""

# The package contains the licences of these. tests/deploy:package_test compares the list with what
# Bazel says the shipped binaries are linked from, and with what is in the package.
SHIPPED_SOURCES = [
    "boringssl",
    "com_github_jupp0r_prometheus_cpp",
    "com_google_absl",
    "libxcrypt",
    "nlohmann_json",
    "protozero",
    "yaml_cpp",
    "zlib",
]
