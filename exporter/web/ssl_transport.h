// SslTransport sends a connection's bytes through TLS: the common part of the server's side
// (tls.cc) and the client's side (tls_client.cc).
//
// Thread: the connection's. Never blocks: returns -1 with EAGAIN, and poll_events() says what to
// wait for. Any other failure is EIO, after Fail() was called.
#ifndef EXPORTER_WEB_SSL_TRANSPORT_H_
#define EXPORTER_WEB_SSL_TRANSPORT_H_

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/types.h>

#include <cstddef>

#include "exporter/http/transport.h"

namespace nccl_pulse {

class SslTransport : public Transport {
 public:
  // Receive and Send also do the handshake until it is complete.
  ssize_t Receive(char* buffer, std::size_t size) override;
  ssize_t Send(const char* data, std::size_t size) override;
  short poll_events() const override { return events_; }
  bool has_pending() const override { return SSL_pending(ssl_.get()) > 0; }
  void Finish() override;

 protected:
  // Throws std::bad_alloc.
  SslTransport(SSL_CTX* context, int fd);

  SSL* ssl() const { return ssl_.get(); }
  // Called when the connection fails. `result`: of the failed call of the TLS library; `error`:
  // SSL_get_error of it. errno and the library's error queue are as that call left them.
  virtual void Fail(int error, int result) = 0;
  // Returns the reason of the TLS library's oldest queued error (SSL_R_...), or 0.
  static int Reason();

 private:
  ssize_t Result(int result);

  const bssl::UniquePtr<SSL> ssl_;
  short events_ = POLLIN;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_SSL_TRANSPORT_H_
