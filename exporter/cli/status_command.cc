// pulse status: current state of a node's communicators.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/base/time.h"
#include "exporter/cli/command.h"
#include "exporter/cli/flags/fleet_flags.h"
#include "exporter/cli/local_endpoints.h"
#include "exporter/cli/status/calls_table.h"
#include "exporter/cli/status/status_table.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/outside/outside_look.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace status_command {

using Json = nlohmann::json;

struct {
  std::string calls_of, color = "auto";
  bool json = false, watch = false, all = false, calls = false;
  absl::Duration interval = absl::Seconds(1);
} flags;  // NOLINT(cert-err58-cpp)

constexpr std::chrono::milliseconds kSearchPatience{2000};

constexpr char kHelp[] =
    R"(usage: pulse status [flags] [ENDPOINT]

Shows what the NCCL communicators of this node are doing: first problems, then a table per communicator.
It reads the node's endpoint, so it also works while a job hangs.

  HANG   nothing of a communicator has completed for 10 s (NCCL_PULSE_HANG_SECONDS) and work is in flight;
         >> marks the ranks that the others wait for
  WAIT   the same, for at most 1.5 times a wait that the job recovered from before
  SLOW   the others wait for this rank, call after call; > marks it

  STATE      idle       nothing in flight          in flight  work is in flight
             waits      in a hang                  queued     behind earlier work of its own GPU
             gone       the process ended          stopped    the process doesn't run
             in graphs  CUDA graph replays, which aren't tracked
             stuck      CUDA graph replays, and the driver doesn't let us read what has finished
             replaying  CUDA graph replays, and collectives finish
             quiet      CUDA graphs, and nothing has finished for a while
             ended      the communicator was finalized
             unknown    the reason is below the table
  FOR        how long it has been in that state
  LAST CALL  operation, size class, and how often this kind was called
  CALLS      since its start, with those that CUDA graph replays finished, if they are counted
  CALLS/S    over the last second (--interval)
  P50, P99   of the operation named above the table, from timed calls
  BUS        its bus bandwidth, as nccl-tests reports it

Processes that use NCCL without the plugin are listed last: those that the agent finds, without an address also
those of this host.

"as of N s ago" in the first line: the endpoint is out of CPU budget and sent an older answer.

Addresses of endpoints, TLS and passwords: `pulse help connect`.
Default: the first endpoint that answers on this host (with TLS or a password: port 9410).

{flags}

Examples:
  pulse status --watch
  pulse status node-1 --calls
  pulse status https://node-1:9410 --ca-cert=ca.pem --credentials-file=me.txt

Exit status: 0 no hang, or a WAIT; 1 bad usage; 2 no answer; 3 a hang is suspected; 4 incomplete: a process
was lost or doesn't run, a communicator's work can't be seen, or another endpoint of this host doesn't answer.
What verdicts mean: docs/debug-a-hang.md.
)";

struct StatusEndpoint {
  Address address;
  FleetClientOptions client;
};

// Returns nothing if there is nothing to show; the reason has been printed. `is_nobody_here`: no
// address was given, and no endpoint was found.
std::optional<Json> Look(const StatusEndpoint& from, bool is_nobody_here = false) {
  constexpr char kPath[] = "/api/v1/communicators";
  const FleetAnswer answer = Ask(from.address, kPath, from.client);
  if (const std::string problem = ProblemOf(answer, kPath); !problem.empty()) {
    const bool wants_password = answer.status == 401 && !answer.had_credentials;
    Fail(0, absl::StrCat("no answer from ", from.address.name(), ": ", problem,
                         wants_password ? ": --credentials-file=FILE or --bearer-file=FILE" : ""));
    // A TLS failure means that the endpoint was found.
    if (!answer.error.empty() && !from.address.is_https) FailUnheard(0, is_nobody_here);
    return std::nullopt;
  }
  Json page = ParseJson(answer.body);
  if (!page.is_object() || !page.contains("communicators")) {
    Fail(0, absl::StrCat("the answer of ", from.address.name(),
                         " is not from NCCL Pulse: does another program listen there?"));
    return std::nullopt;
  }
  page["age_seconds"] = answer.age.count();
  return page;
}

// Returns the terminal's size; 0 if there is none, or it is not known.
winsize ScreenSize() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return size;
}

// Prints a communicator's last calls, or why there are none.
void PrintCalls(const StatusEndpoint& from, const std::string& comm) {
  const std::string path = absl::StrCat("/api/v1/communicators/", comm, "/calls");
  const FleetAnswer answer = Ask(from.address, path, from.client);
  const Json page = ParseJson(answer.body);
  std::string problem = ProblemOf(answer, path);
  if (answer.status == 404) problem = "not known here; `pulse status --all` lists all";
  if (problem.empty() && !page.is_object()) problem = "the answer is not from NCCL Pulse";
  if (!problem.empty()) {
    Fail(0, absl::StrCat("no last calls of communicator ", comm, ": ", problem));
    return;
  }
  constexpr std::size_t kLines = 12;
  std::printf("\n%s", CallsTable(page, kLines, ScreenSize().ws_col).c_str());
}

void PrintCallsOfHanging(const StatusEndpoint& from, const Json& page) {
  constexpr int kMost = 16;
  int shown = 0;
  if (!page["communicators"].is_array()) return;
  for (const Json& comm : page["communicators"]) {
    const std::string id = TextAt(comm, "comm");
    if (!At(comm, "hang").is_object() || !IsCommunicatorId(id)) continue;
    if (++shown > kMost) {
      std::puts("\nMore communicators hang; --calls-of=ID shows the last calls of one.");
      return;
    }
    PrintCalls(from, id);
  }
  if (shown == 0) std::puts("\nNo communicator hangs; --calls-of=ID shows the last calls of any.");
}

bool UseColor(const std::string& wanted) {
  if (wanted != "auto") return wanted == "always";
  const char* terminal = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string(terminal) != "dumb" &&
         (no_color == nullptr || *no_color == '\0');
}

StatusOptions ForScreen(StatusOptions options) {
  const int columns = ScreenSize().ws_col;
  if (columns > 0) options.width = std::clamp(columns, 40, 140);
  options.table_width = columns;
  return options;
}

// Returns the first lines that fit the screen; problems are at the top.
std::string Cut(const std::string& table) {
  const auto rows = static_cast<std::size_t>(ScreenSize().ws_row);
  const auto lines = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n'));
  if (rows < 4 || lines < rows) return table;
  std::size_t end = 0;
  for (std::size_t line = 0; line + 2 < rows; ++line) end = table.find('\n', end) + 1;
  return absl::StrCat(table.substr(0, end), "... ", lines - (rows - 2), " more lines\n");
}

int Watch(const StatusEndpoint& endpoint, bool json, const StatusOptions& options,
          absl::Duration interval) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::optional<Json> before;
  while (true) {
    std::optional<Json> page = Look(endpoint);
    if (page && json) {
      std::printf("%s\n", JsonText(*page).c_str());
    } else if (page) {
      const std::string table = StatusTable(*page, before ? &*before : nullptr, ForScreen(options));
      // From the top of the screen, clearing the previous output.
      std::printf("%s%s%s", terminal ? "\033[H\033[2J" : "", Cut(table).c_str(),
                  terminal ? "" : "\n");
    }
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return 0;  // main() says why
    before = std::move(page);
    absl::SleepFor(interval);
  }
}

// Returns the first endpoint of this host, for a command without an address; "" if there is none.
// If there are several, prints which one is used. `is_one_left_out`: set if another endpoint exists
// but does not answer.
std::string FirstOfThisHost(bool* is_one_left_out) {
  FleetClientOptions client;
  client.patience = kSearchPatience;
  std::vector<SilentPort> silent;
  const std::vector<Address> found = FindLocalEndpoints(client, false, &silent);
  // The query reports its problem.
  if (found.empty()) return silent.empty() ? "" : silent.front().address.name();
  for (const SilentPort& port : silent) {
    Fail(0, absl::StrCat(port.address.name(), " is left out: ", port.why));
  }
  *is_one_left_out = !silent.empty();
  std::string others;
  for (std::size_t i = 1; i < found.size(); ++i) absl::StrAppend(&others, " :", found[i].port);
  if (!others.empty() || found.front().port != kDefaultEndpointPort) {
    Fail(0, absl::StrCat("no address was given: this is ", found.front().name(),
                         others.empty() ? "" : "; other endpoints of this host:", others));
  }
  return found.front().name();
}

// Returns this host's processes without the plugin, for an endpoint that doesn't list them.
Json WithoutPluginHere() {
  const outside::Sources sources = outside::SourcesOfThisHost();
  return WithoutPluginJson(outside::WithoutPlugin(sources.processes(nullptr).processes,
                                                  sources.gpus(sources.now_realtime_ns())));
}

int ExitStatus(const Json& page, bool is_one_left_out) {
  switch (FindingOf(page)) {
    case Finding::kHang:
      return kHangFound;
    case Finding::kIncomplete:
      return kIncomplete;
    case Finding::kNone:
      break;
  }
  return is_one_left_out ? kIncomplete : 0;
}

FlagTable Flags() {
  fleet_flags.timeout = absl::Seconds(5);
  return {
      {"--watch", &flags.watch, "", "refresh until Ctrl-C"},
      {"--interval", &flags.interval, "DURATION",
       "time between two refreshes, with a unit: 5s, 500ms", "250ms to 1h"},
      {"--json", &flags.json, "",
       "print the endpoint's answer (/api/v1/communicators) with \"age_seconds\", its age; with "
       "--watch one line per answer"},
      {"--all", &flags.all, "", "also show communicators that have ended"},
      {"--calls", &flags.calls, "",
       "show the last calls of communicators that hang, ranks side by side; > marks "
       "differences"},
      {"--calls-of", &flags.calls_of, "ID",
       "show the last calls of this communicator (16 hexadecimal digits)"},
      {"--color", &flags.color, "auto|always|never", "auto: on a terminal without NO_COLOR"}};
}

int Run(const std::vector<std::string>& arguments) {
  const bool json = flags.json;
  const absl::Duration interval = flags.interval;
  const std::string& color = flags.color;
  std::vector<std::string>& given = fleet_flags.endpoints;
  given.insert(given.end(), arguments.begin(), arguments.end());
  if (given.size() > 1) {
    return Fail(kUsageError, "status takes one endpoint; `pulse diagnose` takes several");
  }
  std::string address = given.empty() ? "" : given.front();
  const std::string& calls_of = flags.calls_of;
  if (!calls_of.empty() && !IsCommunicatorId(calls_of)) {
    return Fail(kUsageError, absl::StrCat("--calls-of=", calls_of, ": not 16 hexadecimal digits"));
  }
  if ((!calls_of.empty() || flags.calls) && (json || flags.watch)) {
    return Fail(kUsageError, "--calls goes neither with --json nor with --watch");
  }
  FleetQuestion question;
  std::string problem;
  if (!ReadClients(&question, &problem)) return Fail(kUsageError, problem);
  // The password must not go to a process that listens on another port.
  const bool is_search =
      address.empty() && !question.is_https && question.client.authorization.empty();
  bool is_one_left_out = false;
  if (is_search) address = FirstOfThisHost(&is_one_left_out);
  const bool is_nobody_here = is_search && address.empty();
  if (address.empty()) address = absl::StrCat("localhost:", kDefaultEndpointPort);
  StatusEndpoint endpoint;
  endpoint.client = question.client;
  question.endpoints.resize(1);
  Address& asked = question.endpoints.front();
  if (!ParseEndpointAddress(address, question.is_https, kDefaultEndpointPort, &asked, &problem) ||
      !HasAuthorities(question, &problem)) {
    return Fail(kUsageError, problem);
  }
  endpoint.address = asked;
  StatusOptions options;
  options.color = UseColor(color);
  options.all = flags.all;
  if (flags.watch) return Watch(endpoint, json, options, interval);

  std::optional<Json> page = Look(endpoint, is_nobody_here);
  // An agent lists them; a job's own server does not.
  Json without = page ? At(*page, "without_plugin") : Json();
  if (is_search && !without.is_array()) without = WithoutPluginHere();
  if (!page) {
    std::fputs(WithoutPluginLines(without, Seconds(RealtimeNs())).c_str(), stderr);
    return kUnreachable;
  }
  (*page)["without_plugin"] = without;
  if (json) {
    std::printf("%s\n", JsonText(*page, 2).c_str());
    return ExitStatus(*page, is_one_left_out);
  }
  // A second poll, for the rates.
  absl::SleepFor(interval);
  std::optional<Json> later = Look(endpoint);
  if (!later) return kUnreachable;
  (*later)["without_plugin"] = std::move(without);
  const std::string table = StatusTable(*later, &*page, ForScreen(options));
  std::fputs(table.c_str(), stdout);
  if (!calls_of.empty()) {
    PrintCalls(endpoint, calls_of);
  } else if (flags.calls) {
    PrintCallsOfHanging(endpoint, *later);
  }
  // If the beginning has scrolled off the screen.
  if (FindingOf(*later) == Finding::kHang && ScreenSize().ws_row > 0 && Cut(table) != table) {
    std::puts("\nA hang is suspected: see the first lines above, or --watch.");
  }
  return ExitStatus(*later, is_one_left_out);
}

}  // namespace status_command

const Command kStatusCommand = {"status",
                                "show what the communicators of this node do now",
                                status_command::kHelp,
                                status_command::Flags,
                                status_command::Run,
                                EndpointFlags};

}  // namespace nccl_pulse
