// Serves TLS to clients of `pulse agent` and `pulse watch`, with BoringSSL: versions 1.0 to 1.3,
// server side, non-blocking.
//
// Offers no session resumption and no early data, so nothing can be replayed and nothing is stored.
// The full handshake that each connection needs is cheap compared with a page. ALPN offers only
// HTTP/1.1.
//
// Thread: contexts are made on any; transports are made and used on the server thread.
#ifndef EXPORTER_WEB_TLS_H_
#define EXPORTER_WEB_TLS_H_

#include <memory>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/http/transport.h"
#include "exporter/web/config.h"

namespace nccl_pulse {

// Logs failed handshakes, at most one every ten seconds: a client that retries forever must not
// fill the log. Clients that send nothing or hang up (a port scan, a load balancer) are not logged.
class HandshakeLog {
 public:
  explicit HandshakeLog(LogFunction log) : log_(std::move(log)) {}

  void Failed(const std::string& client, const std::string& reason);

 private:
  const LogFunction log_;
  int64_t quiet_until_ns_ = 0;  // monotonic
  int skipped_ = 0;
};

// The server's certificate and key, and what it requires of clients; the files are read once.
// Immutable; a connection keeps the context that it began with.
class TlsContext {
 public:
  // Returns null, with the file, the key and the reason in `error`, if the configuration is
  // invalid. `notes`: warnings for the user.
  static std::shared_ptr<const TlsContext> Make(const TlsConfig& config,
                                                std::vector<std::string>* notes,
                                                std::string* error);

  virtual ~TlsContext() = default;

  // Returns the transport of a newly accepted client. `log` must outlive it. Throws if memory runs
  // out.
  virtual std::unique_ptr<Transport> Accept(int fd, HandshakeLog* log) const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_TLS_H_
