// The endpoints of a made-up job, all in this process. Each node has a real server on a port of the
// loopback interface, over the segments of the node's ranks. One thread writes into them what the
// ranks' plugins would.
//
//   endpoints --nodes=125
//
// Standard output: "endpoint HOST ADDRESS" for each, then "ready". To each line of standard input
// it answers "cpu SERVERS WRITER": the processor time so far, in seconds, of the servers' threads
// and of the thread that stands for the job. Ends with standard input, or after --life.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/time.h"
#include "bench/fleet/made_up_job.h"
#include "bench/fleet/made_up_rank.h"
#include "exporter/endpoint/server.h"
#include "metrics/segment_reader.h"

ABSL_FLAG(int, nodes, 125, "nodes, each with an endpoint; at most 1000");
ABSL_FLAG(int, gpus_per_node, 8, "ranks of a node; at most 16");
ABSL_FLAG(int, communicators, 4, "communicators of a rank; at most 8");
ABSL_FLAG(bool, sharded, false, "a job without Send and Recv");
ABSL_FLAG(absl::Duration, life, absl::Hours(2), "ends after that, whatever happens");

namespace nccl_pulse {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStep{500};

// Processor time so far.
double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

struct NodeOfJob {
  std::vector<std::unique_ptr<MadeUpRank>> ranks;
  std::unique_ptr<Server> server;  // reads the ranks, so it ends before them
};

SnapshotSet ReadRanks(const std::vector<std::unique_ptr<MadeUpRank>>& ranks) {
  SnapshotSet set(std::vector<ProcessSnapshot>(ranks.size()));
  std::string error;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Segment& segment = ranks[i]->segment();
    if (!ReadSegment(segment.base(), segment.bytes(), &set.processes[i], &error)) {
      throw std::runtime_error(error);
    }
  }
  return set;
}

std::unique_ptr<Server> Serve(const std::vector<std::unique_ptr<MadeUpRank>>& ranks) {
  ServerOptions options;
  options.listen_address = "127.0.0.1:0";
  options.source = [&ranks] { return ReadRanks(ranks); };
  // On a busy machine the made-up job may stand still for seconds. That is not a hang.
  options.hang_after = std::chrono::seconds(60);
  options.log = [](LogLevel level, const std::string& message) {
    if (level != LogLevel::kInfo) std::fprintf(stderr, "%s\n", message.c_str());
  };
  std::string error;
  std::unique_ptr<Server> server = Server::Start(std::move(options), &error);
  if (server == nullptr) throw std::runtime_error(error);
  return server;
}

// Allows a descriptor for each segment, and some for each server.
void AllowDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// False at the end of standard input. Lines are short: what one read returns is one question.
bool AnswerQuestion() {
  char line[64];
  const ssize_t length = read(STDIN_FILENO, line, sizeof(line));
  if (length <= 0) return false;
  const double writer = Seconds(CLOCK_THREAD_CPUTIME_ID);
  std::printf("cpu %.3f %.3f\n", Seconds(CLOCK_PROCESS_CPUTIME_ID) - writer, writer);
  std::fflush(stdout);
  return true;
}

void RunJob(const std::vector<NodeOfJob>& nodes) {
  const auto end = steady_clock::now() + absl::ToChronoSeconds(absl::GetFlag(FLAGS_life));
  auto last = steady_clock::now();
  while (last < end) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const auto wait = std::max<int64_t>(
        0, std::chrono::duration_cast<std::chrono::milliseconds>(last + kStep - steady_clock::now())
               .count());
    if (poll(&input, 1, static_cast<int>(wait)) > 0 && !AnswerQuestion()) {
      return;
    }
    const auto now = steady_clock::now();
    if (now < last + kStep) continue;
    // After a long time without the processor the job does not catch up for as long.
    const auto passed = std::min<steady_clock::duration>(now - last, 10 * kStep);
    for (const NodeOfJob& node : nodes) {
      for (const auto& rank : node.ranks) {
        rank->Advance(static_cast<uint64_t>(std::chrono::nanoseconds(passed).count()));
      }
    }
    last = now;
  }
}

int Main() {
  const int communicators = absl::GetFlag(FLAGS_communicators);
  const JobShape job = MakeJobShape(absl::GetFlag(FLAGS_nodes), absl::GetFlag(FLAGS_gpus_per_node),
                                    absl::GetFlag(FLAGS_sharded));
  if (job.nodes < 1 || job.nodes > 1000 || job.gpus_per_node < 1 || job.gpus_per_node > 16 ||
      communicators < 1 || communicators > kMostCommunicators) {
    std::fprintf(stderr, "endpoints: a flag is out of range; see --help\n");
    return 1;
  }
  AllowDescriptors();
  std::vector<NodeOfJob> nodes(job.nodes);
  for (int node = 0; node < job.nodes; ++node) {
    auto& ranks = nodes[node].ranks;
    for (int gpu = 0; gpu < job.gpus_per_node; ++gpu) {
      ranks.push_back(
          std::make_unique<MadeUpRank>(job, node * job.gpus_per_node + gpu, communicators));
    }
    nodes[node].server = Serve(ranks);
    std::printf("endpoint %s %s\n", HostName(node).c_str(), nodes[node].server->address().c_str());
  }
  std::printf("ready\n");
  std::fflush(stdout);
  RunJob(nodes);
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    return nccl_pulse::Main();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "endpoints: %s\n", error.what());
    return 1;
  }
}
