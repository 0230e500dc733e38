#include "exporter/cli/serve_verdicts.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "exporter/node/listener.h"

namespace nccl_pulse {
namespace {

// A line that standard output does not take now is dropped: who does not read it must not hold up
// verdicts. A pipe that can be written to takes as much as this at once.
constexpr std::size_t kMostLineBytes = 4096;

void Print(std::string line) {
  if (line.size() >= kMostLineBytes) line.resize(kMostLineBytes - 1);
  line += '\n';
  pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return;
  (void)!write(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace

int ServeVerdicts(const std::string& listen, VerdictServer::Look look) {
  ListenAddress address;
  std::string error;
  if (!ParseListenAddress(listen, &address, &error) || !address.path.empty()) {
    std::fprintf(stderr, "pulse: --listen: %s\n",
                 address.path.empty() ? error.c_str() : "a TCP address is needed: host:port");
    return 1;
  }
  SharedDescriptor socket;
  Listener listener;
  if (const int failure = OpenAt(address, &socket, &listener)) {
    std::fprintf(stderr, "pulse: cannot listen on %s: %s\n", SpellAddress(address).c_str(),
                 std::strerror(failure));
    return 1;
  }
  std::fprintf(stderr,
               "pulse: verdicts at http://%s/ and, for Alertmanager's webhook, /alertmanager\n",
               listener.address.c_str());
  VerdictServer server(std::move(look), Print);
  std::fprintf(stderr, "pulse: stopped listening: %s\n", std::strerror(server.Serve(socket.get())));
  return 1;
}

}  // namespace nccl_pulse
