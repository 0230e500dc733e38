// pulse install: copies the library into a folder, for images without cp.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "exporter/base/error_text.h"
#include "exporter/base/files.h"
#include "exporter/cli/command.h"
#include "exporter/cli/installation.h"

namespace nccl_pulse {
namespace install_command {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    R"(usage: pulse install FOLDER

Copies the plugin into FOLDER, which must exist, under both names that it is loaded by:
libnccl-profiler-pulse.so and librccl-profiler-pulse.so. Use it in an init container that passes the plugin to a
training container through a volume. An existing file is replaced in one step; running processes keep the old one.

Examples:
  pulse install /shared

Exit status: 0 done; 1 bad usage; 2 the plugin is not installed beside this program, or FOLDER can't be written to.
)";

// Writes under another name first, so that no process loads half a file.
bool Replace(const std::string& library_bytes, const std::string& target, std::string* error) {
  const std::string unfinished = target + "." + std::to_string(getpid());
  const int fd = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool is_written = WriteAndClose(fd, target, library_bytes, error);
  if (is_written &&
      (chmod(unfinished.c_str(), 0644) != 0 || rename(unfinished.c_str(), target.c_str()) != 0)) {
    is_written = FailToWrite(target, ErrorText(errno), error);
  }
  if (is_written) return true;
  unlink(unfinished.c_str());
  *error += "; a file of that name is kept";
  return false;
}

FlagTable Flags() { return {}; }

int Run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) {
    return Fail(kUsageError, "install takes one argument, the folder");
  }
  std::error_code ignored;
  if (!fs::is_directory(arguments[0], ignored)) {
    return Fail(kUnreachable, "there is no folder " + arguments[0] + "; create it");
  }
  const std::string library = FindPluginLibrary();
  if (library.empty()) return Fail(kUnreachable, kNoPluginLibrary);
  std::string bytes, error;
  if (!ReadRegularFile(library, 1 << 30, &bytes, &error)) {
    return Fail(kUnreachable, library + ": " + error);
  }
  for (const char* name : {"libnccl-profiler-pulse.so", "librccl-profiler-pulse.so"}) {
    const std::string target = fs::path(arguments[0]) / name;
    if (!Replace(bytes, target, &error)) return Fail(kUnreachable, error);
    std::printf("%s\n", target.c_str());
  }
  return 0;
}

}  // namespace install_command

const Command kInstallCommand = {"install", "copy the plugin into a folder", install_command::kHelp,
                                 install_command::Flags, install_command::Run};

}  // namespace nccl_pulse
