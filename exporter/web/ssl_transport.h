// A connection's bytes through TLS: what the server's side (tls.cc) and the client's
// (tls_client.cc) have in common.
//
// Thread: that of the connection. Nothing blocks: a call that would returns -1 with EAGAIN, and
// poll_events() says what to wait for. Any other failure is EIO, after the hook has been called.
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
  // Receive and Send take part in the handshake until that is done.
  ssize_t Receive(char* buffer, std::size_t size) override;
  ssize_t Send(const char* data, std::size_t size) override;
  short poll_events() const override { return events_; }
  bool has_pending() const override { return SSL_pending(ssl_.get()) > 0; }
  void Finish() override;

 protected:
  // Throws std::bad_alloc.
  SslTransport(SSL_CTX* context, int fd);

  SSL* ssl() const { return ssl_.get(); }
  // The connection has failed: `error` is SSL_get_error's answer, `result` the call's. errno and
  // the library's queue of errors are as the call has left them.
  virtual void Fail(int error, int result) = 0;
  // Why, if the library's TLS part says so (SSL_R_...), otherwise 0.
  static int Reason();

 private:
  ssize_t Result(int result);

  const bssl::UniquePtr<SSL> ssl_;
  short events_ = POLLIN;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_SSL_TRANSPORT_H_
