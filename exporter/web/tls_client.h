// TLS towards an endpoint or a Prometheus, for `pulse status` and `pulse diagnose`: the client's
// side, with BoringSSL, non-blocking, versions 1.2 and 1.3. The server's certificate is checked,
// and its name, unless that was switched off.
//
// Thread: any makes a client; whoever uses a transport, one at a time. Cost: a handshake for each
// connection.
#ifndef EXPORTER_WEB_TLS_CLIENT_H_
#define EXPORTER_WEB_TLS_CLIENT_H_

#include <memory>
#include <string>

#include "exporter/http/transport.h"

namespace nccl_pulse {

struct TlsClientConfig {
  std::string ca_file;       // PEM: who may have signed the server's certificate; "": the system's
  std::string cert_file;     // PEM: own certificate, those between behind it; "": none
  std::string key_file;      // PEM: its key
  std::string name;          // that the certificate must have; "": that of the connection
  bool is_insecure = false;  // the server's certificate is not checked
};

class TlsClient {
 public:
  // Null, with the file and what is wrong in `error`.
  static std::shared_ptr<const TlsClient> Make(const TlsClientConfig& config, std::string* error);

  virtual ~TlsClient() = default;

  // For a socket that is connected to `host`, a name or an address, and does not block. The first
  // call of the transport begins the handshake. Throws when memory runs out.
  virtual std::unique_ptr<Transport> Connect(int fd, const std::string& host) const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_TLS_CLIENT_H_
