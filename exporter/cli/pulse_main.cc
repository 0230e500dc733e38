// The `pulse` program: finds the subcommand, parses its flags, runs it.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/version.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"

namespace nccl_pulse {
namespace {

const Command* const kCommands[] = {&kStatusCommand,   &kDiagnoseCommand, &kWatchCommand,
                                    &kCaptureCommand,  &kTraceCommand,    &kSetCommand,
                                    &kSettingsCommand, &kAgentCommand,    &kDemoCommand,
                                    &kInstallCommand,  &kPathCommand,     &kEnvCommand};

void PrintUsage(FILE* out) {
  std::fprintf(out,
               "NCCL Pulse: which rank a job waits for, and Prometheus metrics of every NCCL "
               "operation.\n\nusage: pulse COMMAND [flags]\n\n");
  for (const Command* command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", command->name, command->summary);
  }
  std::fputs(R"text(
To see it without a GPU:   pulse demo
For a job of yours:        eval "$(pulse env)"   (or: export NCCL_PROFILER_PLUGIN=$(pulse path))
While the job runs:        pulse status, http://localhost:9410/ in a browser, or curl localhost:9410/metrics

More: `pulse help COMMAND`. Addresses, TLS and passwords: `pulse help connect`. Version: `pulse --version`.
)text",
             out);
}

const Command* Find(std::string_view name) {
  for (const Command* command : kCommands) {
    if (name == command->name) return command;
  }
  return nullptr;
}

int NoSuchCommand(const char* name) {
  std::vector<std::string> names = {"help"};
  for (const Command* command : kCommands) names.emplace_back(command->name);
  const std::string nearest = Nearest(name, names);
  Fail(0, absl::StrCat("no command \"", name, "\"",
                       nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?")));
  if (nearest.empty()) {
    PrintUsage(stderr);
  } else {  // not the whole help, which would scroll the suggestion off the screen
    std::fputs("`pulse help` lists all commands.\n", stderr);
  }
  return kUsageError;
}

bool IsHelp(std::string_view argument) {
  return argument == "--help" || argument == "-h" || argument == "-help";
}

// Opens closed standard streams, so that no file or socket gets their descriptors.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Writing to a stream opened for reading fails, as before.
    if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// Returns `status`, or kNotWritten if some output could not be written.
int Written(int status) {
  const bool was_bad = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !was_bad) return status;
  const int error = was_bad ? 0 : errno;
  // Not a failure: the reader, head(1) for example, has closed the pipe.
  pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0) return status;
  return Fail(kNotWritten, absl::StrCat("cannot write to standard output",
                                        error == 0 ? "" : absl::StrCat(": ", ErrorText(error))));
}

int Main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const bool asks_for_help = IsHelp(name) || name == "help";
  if (name.empty() || (asks_for_help && argc == 2)) {
    PrintUsage(stdout);
    return 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("pulse %s\n", BuildVersion().c_str());
    return 0;
  }
  // Used only by shells (deploy/package/completions); not listed in the help.
  if (name == "complete") {
    std::vector<std::string> words(argv + 2, argv + argc);
    if (!words.empty() && words.front() == "--") words.erase(words.begin());
    for (const std::string& each :
         Completions({std::begin(kCommands), std::end(kCommands)}, words)) {
      std::puts(each.c_str());
    }
    return 0;
  }
  const char* wanted = asks_for_help ? argv[2] : argv[1];
  if (asks_for_help && (std::strcmp(wanted, "help") == 0 || std::strcmp(wanted, "version") == 0)) {
    PrintUsage(stdout);
    return 0;
  }
  const bool is_topic = asks_for_help && std::string_view(wanted) == kConnectTopic.name;
  const Command* command = is_topic ? &kConnectTopic : Find(wanted);
  if (command == nullptr) return NoSuchCommand(wanted);
  const std::vector<std::string_view> arguments(argv + 2, argv + argc);
  if (asks_for_help || std::any_of(arguments.begin(), arguments.end(), IsHelp)) {
    std::fputs(HelpText(*command).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> rest;
  const std::string problem =
      ReadFlags(absl::StrCat("pulse ", command->name), AllFlags(*command), arguments, &rest);
  if (!problem.empty()) {
    Fail(kUsageError, problem);
    return Fail(kUsageError, absl::StrCat("`pulse help ", command->name, "` lists the flags"));
  }
  // OpenSSL writes to sockets with write(2): an endpoint that closes its connection must not end
  // the program. The demo prints forever, and ends with its reader.
  if (command != &kDemoCommand) std::signal(SIGPIPE, SIG_IGN);
  // The parent may ignore SIGCHLD, which is inherited: no program's exit status would be known.
  std::signal(SIGCHLD, SIG_DFL);
  // Makes a file size limit an error like a full disk: an agent keeps serving, and unfinished files
  // are removed.
  std::signal(SIGXFSZ, SIG_IGN);
  return command->run(rest);
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) {
  nccl_pulse::OccupyStandardStreams();
  return nccl_pulse::Written(nccl_pulse::Main(argc, argv));
}
