// pulse install: copies the library into a folder, for images without cp.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "exporter/base/error_text.h"
#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"
#include "exporter/cli/plugin_file.h"

namespace nccl_pulse {
namespace {

namespace fs = std::filesystem;

std::string library;  // NOLINT(cert-err58-cpp)

constexpr char kHelp[] =
    R"(usage: pulse install FOLDER [flags]

Copies the plugin into FOLDER, which must exist, under both names that it is loaded by:
libnccl-profiler-pulse.so and librccl-profiler-pulse.so. Use it in an init container that passes the plugin to a
training container through a volume. An existing file is replaced in one step; running processes keep the old one.

{flags}

Examples:
  pulse install /shared

Exit status: 0 done; 1 bad usage; 2 no such library, or FOLDER can't be written to.
)";

// Copies under another name first, so that no process loads half a file.
bool Replace(const fs::path& source, const fs::path& target, std::string* error) {
  const fs::path unfinished = target.string() + "." + std::to_string(getpid());
  std::error_code code;
  fs::copy_file(source, unfinished, fs::copy_options::overwrite_existing, code);
  if (!code) {
    constexpr fs::perms kForEverybody = fs::perms::owner_read | fs::perms::owner_write |
                                        fs::perms::group_read | fs::perms::others_read;
    fs::permissions(unfinished, kForEverybody, code);
  }
  if (!code) fs::rename(unfinished, target, code);
  if (!code) return true;
  std::error_code ignored;
  fs::remove(unfinished, ignored);
  return FailToWrite(target, code.message(), error);
}

FlagTable Flags() {
  return {{"--library", &library, "PATH",
           "the plugin library, for this kind of machine (default: the one of this installation)"}};
}

int Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) {
    return Fail(kUsageError, "install takes one argument, the folder");
  }
  std::error_code ignored;
  if (!fs::is_directory(arguments[0], ignored)) {
    return Fail(kUnreachable, "there is no folder " + arguments[0] + "; create it");
  }
  if (library.empty()) library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  if (const std::string why = WhyNoPlugin(library); !why.empty()) {
    return Fail(kUnreachable, library + " " + why);
  }
  for (const char* name : {"libnccl-profiler-pulse.so", "librccl-profiler-pulse.so"}) {
    const fs::path target = fs::path(arguments[0]) / name;
    std::string error;
    if (!Replace(library, target, &error)) return Fail(kUnreachable, error);
    std::printf("%s\n", target.c_str());
  }
  return 0;
}

}  // namespace

const Command kInstallCommand = {"install", "copy the plugin into a folder", kHelp, Flags, Run};

}  // namespace nccl_pulse
