#include "exporter/web/ssl_transport.h"

#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace nccl_pulse {

SslTransport::SslTransport(SSL_CTX* context, int fd) : ssl_(SSL_new(context)) {
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) throw std::bad_alloc();
}

ssize_t SslTransport::Receive(char* buffer, std::size_t size) {
  ERR_clear_error();
  return Result(SSL_read(ssl_.get(), buffer, static_cast<int>(size)));
}

ssize_t SslTransport::Send(const char* data, std::size_t size) {
  constexpr std::size_t kMost = 1 << 30;
  ERR_clear_error();
  return Result(SSL_write(ssl_.get(), data, static_cast<int>(std::min(size, kMost))));
}

void SslTransport::Finish() {
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
}

int SslTransport::Reason() {
  const uint32_t error = ERR_peek_error();
  return ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
}

ssize_t SslTransport::Result(int result) {
  events_ = POLLIN;
  if (result > 0) return result;
  const int error = SSL_get_error(ssl_.get(), result);
  switch (error) {
    case SSL_ERROR_WANT_READ:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      events_ = POLLOUT;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      Fail(error, result);
      errno = EIO;
      return -1;
  }
}

}  // namespace nccl_pulse
