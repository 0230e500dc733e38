// pulse status: what the communicators of a node do now.
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

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "exporter/cli/command.h"
#include "exporter/cli/status_table.h"
#include "exporter/http/http_get.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(std::string, endpoint, "localhost:9410", "where to ask: host:port or unix:/path");
ABSL_FLAG(bool, json, false, "print what the endpoint says, as JSON");
ABSL_FLAG(bool, watch, false, "again and again, until Ctrl-C");
ABSL_FLAG(absl::Duration, interval, absl::Seconds(1), "between two looks");
ABSL_FLAG(std::string, color, "auto", "auto, always or never");
ABSL_FLAG(bool, all, false, "communicators that ended, too");

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

constexpr int kUsageError = 1;
constexpr int kNoAnswer = 2;
constexpr int kHangFound = 3;
constexpr int kIncomplete = 4;
constexpr std::chrono::milliseconds kPatience{5000};

constexpr char kHelp[] =
    R"(usage: pulse status [flags]

Shows what the NCCL communicators of this node do now: what is wrong first, in sentences, then each
communicator with its ranks. It asks the node's endpoint, and so works beside a job that hangs.

  HANG   work is in flight and has not progressed for 10 seconds (NCCL_PULSE_HANG_SECONDS); the ranks for
         which the others wait are marked >>
  WAIT   the same, but no longer than 1.5 times what it has waited here before and then gone on
  SLOW   the others wait for this rank, call after call; marked >

  STATE      idle       nothing in flight          in flight  work is on its way
             waits      in a hang                  queued     behind earlier work of its own GPU
             gone       the process ended          stopped    the process does not run
             in graphs  CUDA graphs: not visible   ended      the communicator was finalized
             unknown    idle or not cannot be told, and why stands below the table
  FOR        how long it has been so
  LAST CALL  operation, size class, and how often this one was called
  CALLS/S    over the last second (--interval)
  P50, P99   of the operation that is named above the table, from timed calls; BUS is its bus bandwidth,
             as nccl-tests states it

"as of N s ago" in the first line: the endpoint has no processor time left for a new page (docs/node-endpoint.md).

  --endpoint=ADDRESS    host:port, or unix:/path (default localhost:9410); another user's or job's
                        address stands in NCCL's log with NCCL_DEBUG=INFO
  --watch               again and again, until Ctrl-C
  --interval=DURATION   between two looks (default 1s)
  --json                what the endpoint says (/api/v1/communicators), one look; and "age_seconds": how
                        old that was when it came
  --all                 communicators that ended, too
  --color=auto|always|never

Exit status: 0 no hang is suspected, or only a WAIT; 1 bad usage; 2 the endpoint does not answer; 3 a hang
is suspected; 4 none is, but a process was lost or does not run, or a communicator's work cannot be seen.
What the verdicts mean: docs/hangs-and-stragglers.md.
)";

// Null when there is nothing to show; what was wrong has been said.
std::optional<Json> Look(const std::string& endpoint) {
  HttpAnswer answer;
  std::string error;
  if (!HttpGet(endpoint, "/api/v1/communicators", kPatience, &answer, &error)) {
    std::fprintf(
        stderr,
        "pulse: no answer from %s: %s\n"
        "Is a job with NCCL Pulse running on this node? Its log says where the metrics are "
        "(NCCL_DEBUG=INFO); name that with --endpoint=host:port.\n",
        endpoint.c_str(), error.c_str());
    return std::nullopt;
  }
  if (answer.status != 200) {
    std::fprintf(stderr, "pulse: %s answers with status %d: %s\n", endpoint.c_str(), answer.status,
                 answer.status == 404 ? "is it another program?"
                                      : answer.body.substr(0, answer.body.find('\0')).c_str());
    return std::nullopt;
  }
  Json page = Json::parse(answer.body, nullptr, false);
  if (page.is_discarded() || !page.is_object() || !page.contains("communicators")) {
    std::fprintf(stderr, "pulse: what %s answers is not NCCL Pulse's: is it another program?\n",
                 endpoint.c_str());
    return std::nullopt;
  }
  page["age_seconds"] = answer.age.count();
  return page;
}

bool UseColor(const std::string& wanted) {
  if (wanted != "auto") return wanted == "always";
  const char* terminal = std::getenv("TERM");      // NOLINT(concurrency-mt-unsafe)
  const char* no_color = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string(terminal) != "dumb" &&
         (no_color == nullptr || *no_color == '\0');
}

// What standard output shows at once; 0: no terminal, or it does not say.
winsize ScreenSize() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return size;
}

StatusOptions ForScreen(StatusOptions options) {
  const int columns = ScreenSize().ws_col;
  if (columns > 0) options.width = std::clamp(columns, 40, 140);
  options.table_width = columns;
  return options;
}

// The first lines, as many as the screen has: what is wrong stands first.
std::string Cut(const std::string& table) {
  const auto rows = static_cast<std::size_t>(ScreenSize().ws_row);
  const auto lines = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n'));
  if (rows < 4 || lines < rows) return table;
  std::size_t end = 0;
  for (std::size_t line = 0; line + 2 < rows; ++line) end = table.find('\n', end) + 1;
  return absl::StrCat(table.substr(0, end), "... ", lines - (rows - 2), " more lines\n");
}

int Watch(const std::string& endpoint, bool json, const StatusOptions& options,
          absl::Duration interval) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::optional<Json> before;
  while (true) {
    std::optional<Json> page = Look(endpoint);
    if (page && json) {
      std::printf("%s\n", page->dump().c_str());
    } else if (page) {
      const std::string table = StatusTable(*page, before ? &*before : nullptr, ForScreen(options));
      // From the top, and nothing of the last look behind it.
      std::printf("%s%s%s", terminal ? "\033[H\033[2J" : "", Cut(table).c_str(),
                  terminal ? "" : "\n");
    }
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return 0;  // nobody reads any longer
    before = std::move(page);
    absl::SleepFor(interval);
  }
}

int ExitStatus(const Json& page) {
  switch (FindingOf(page)) {
    case Finding::kHang:
      return kHangFound;
    case Finding::kIncomplete:
      return kIncomplete;
    case Finding::kNone:
      break;
  }
  return 0;
}

int Run(const std::vector<char*>& arguments) {
  const std::string endpoint = absl::GetFlag(FLAGS_endpoint);
  const bool json = absl::GetFlag(FLAGS_json);
  const absl::Duration interval = absl::GetFlag(FLAGS_interval);
  const std::string color = absl::GetFlag(FLAGS_color);
  if (!arguments.empty()) {
    std::fprintf(stderr, "pulse: status takes no argument; the address goes to --endpoint\n");
    return kUsageError;
  }
  if (interval < absl::Milliseconds(250) || interval > absl::Hours(1)) {
    std::fprintf(stderr, "pulse: --interval is not between 250ms (the endpoint's own) and 1h\n");
    return kUsageError;
  }
  if (color != "auto" && color != "always" && color != "never") {
    std::fprintf(stderr, "pulse: --color=%s: not auto, always or never\n", color.c_str());
    return kUsageError;
  }
  StatusOptions options;
  options.color = UseColor(color);
  options.all = absl::GetFlag(FLAGS_all);
  if (absl::GetFlag(FLAGS_watch)) return Watch(endpoint, json, options, interval);

  std::optional<Json> page = Look(endpoint);
  if (!page) return kNoAnswer;
  if (json) {
    std::printf("%s\n", page->dump(2).c_str());
    return ExitStatus(*page);
  }
  // A second look, for the rates.
  absl::SleepFor(interval);
  const std::optional<Json> later = Look(endpoint);
  if (!later) return kNoAnswer;
  const std::string table = StatusTable(*later, &*page, ForScreen(options));
  std::fputs(table.c_str(), stdout);
  // Where the beginning has left the screen.
  if (FindingOf(*later) == Finding::kHang && ScreenSize().ws_row > 0 && Cut(table) != table) {
    std::puts("\nA hang is suspected: see the first lines above, or --watch.");
  }
  return ExitStatus(*later);
}

}  // namespace

const Command kStatusCommand = {"status", "show what the communicators of this node do now", kHelp,
                                Run};

}  // namespace nccl_pulse
