// Connects with TLS to an endpoint or Prometheus, for all commands that query endpoints: BoringSSL,
// client side, non-blocking, versions 1.2 and 1.3. Checks the server's certificate and name, unless
// `is_insecure` is set.
//
// Thread: clients are made on any; a transport is used by one thread at a time. Cost: a handshake
// per connection.
#ifndef EXPORTER_WEB_TLS_CLIENT_H_
#define EXPORTER_WEB_TLS_CLIENT_H_

#include <memory>
#include <string>

#include "exporter/http/transport.h"

namespace nccl_pulse {

struct TlsClientConfig {
  std::string ca_file;       // PEM: CAs trusted to sign the server's certificate; "": the system's
  std::string cert_file;     // PEM: own certificate, then intermediate ones; "": none
  std::string key_file;      // PEM: key of cert_file
  std::string name;          // name that the certificate must have; "": the connection's host
  bool is_insecure = false;  // skips checking the server's certificate
};

class TlsClient {
 public:
  // Returns null, with the file and the reason in `error`, if the configuration is invalid.
  static std::shared_ptr<const TlsClient> Make(const TlsClientConfig& config, std::string* error);

  virtual ~TlsClient() = default;

  // Returns a transport for a non-blocking socket connected to `host`, a name or address. Its first
  // call begins the handshake. Throws if memory runs out.
  virtual std::unique_ptr<Transport> Connect(int fd, const std::string& host) const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_TLS_CLIENT_H_
