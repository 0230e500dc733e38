#include "exporter/cli/serve_verdicts.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "exporter/node/listener.h"

namespace nccl_pulse {

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
  VerdictServer server(std::move(look), [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  std::fprintf(stderr, "pulse: stopped listening: %s\n", std::strerror(server.Serve(socket.get())));
  return 1;
}

}  // namespace nccl_pulse
