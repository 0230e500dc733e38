// TLS for the agent's clients, with BoringSSL: versions 1.0 to 1.3, server side, non-blocking.
//
// No session is resumed and nothing is read early: a scrape has one handshake, which is cheap
// beside the page, and what can be replayed or kept is one thing less to think about. HTTP/1.1 is
// the one protocol that ALPN offers.
//
// Thread: any makes a context; the server's makes transports of it and uses them.
#ifndef EXPORTER_WEB_TLS_H_
#define EXPORTER_WEB_TLS_H_

#include <memory>
#include <string>
#include <vector>

#include "exporter/base/log_level.h"
#include "exporter/http/transport.h"
#include "exporter/web/config.h"

namespace nccl_pulse {

// Says which clients failed, and why, at most every ten seconds: a client that tries for ever must
// not fill the log. One that says nothing, or hangs up (a port scan, a load balancer), is not worth
// a line.
class HandshakeLog {
 public:
  explicit HandshakeLog(LogFunction log) : log_(std::move(log)) {}

  void Failed(const std::string& client, const std::string& reason);

 private:
  const LogFunction log_;
  int64_t quiet_until_ns_ = 0;  // monotonic
  int skipped_ = 0;
};

// Certificate, key and what is asked of clients, read once. Does not change; connections hold on to
// the one with which they began.
class TlsContext {
 public:
  // Null, with the file, the key and what is wrong in `error`. `notes`: what to tell the user else.
  static std::shared_ptr<const TlsContext> Make(const TlsConfig& config,
                                                std::vector<std::string>* notes,
                                                std::string* error);

  virtual ~TlsContext() = default;

  // For a client that was just accepted. `log` must outlive it. Throws when memory runs out.
  virtual std::unique_ptr<Transport> Accept(int fd, HandshakeLog* log) const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_TLS_H_
