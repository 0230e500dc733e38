// Measures the cost of any NCCL profiler plugin on this machine's GPUs. docs/benchmarks.md explains
// the method; --help lists the options.
//
// Exit status: 0 measured (whatever the verdicts), 2 wrong arguments, 3 could not measure.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "bench/collective_overhead/group.h"
#include "bench/collective_overhead/libraries.h"
#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/rank.h"
#include "bench/collective_overhead/session.h"

namespace nccl_pulse::overhead {
namespace {

// Runs `collective_overhead --worker NCCL NRANKS RANK:DEVICE:SOCKET...`, as started by Group.
int Worker(const std::vector<std::string>& arguments) {
  int nranks = 0;
  if (arguments.size() < 4 || !absl::SimpleAtoi(arguments[2], &nranks)) return 2;
  std::vector<RankSeat> seats;
  for (std::size_t i = 3; i < arguments.size(); ++i) {
    const std::vector<std::string> parts = absl::StrSplit(arguments[i], ':');
    RankSeat seat{};
    if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &seat.rank) ||
        !absl::SimpleAtoi(parts[1], &seat.device) || !absl::SimpleAtoi(parts[2], &seat.socket)) {
      return 2;
    }
    seats.push_back(seat);
  }
  return ServeRanks(seats, nranks, arguments[1]);
}

// Finds all GPUs of the machine if none were given. Fails if there is nothing to measure.
Error FindDevices(Options* options) {
  Driver driver;
  Error error = driver.Load();
  Nccl nccl;
  if (error.empty()) error = nccl.Load(options->nccl);
  if (!error.empty() || !options->devices.empty()) return error;
  int count = 0;
  error = driver.Check(driver.cuInit(0), "cuInit");
  if (error.empty()) error = driver.Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  for (int device = 0; device < count; ++device) options->devices.push_back(device);
  if (error.empty() && count == 0) error = "this machine has no GPU";
  return error;
}

int Main(const std::vector<std::string>& arguments) {
  const double begin_seconds = NowSeconds();
  if (!arguments.empty() && arguments[0] == "--worker") return Worker(arguments);
  Options options;
  Error error = ParseOptions(arguments, &options);
  if (!error.empty()) {
    fprintf(stderr, "%s\n(--help lists the options)\n", error.c_str());
    return 2;
  }
  if (options.help) {
    fputs(kUsage, stdout);
    return 0;
  }
  error = FindDevices(&options);
  if (!error.empty()) {
    fprintf(stderr, "%s\n", error.c_str());
    return 3;
  }
  StopOnSignals();
  return Session(options, begin_seconds).Run();
}

}  // namespace
}  // namespace nccl_pulse::overhead

int main(int argc, char** argv) { return nccl_pulse::overhead::Main({argv + 1, argv + argc}); }
