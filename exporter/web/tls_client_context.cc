#include "exporter/web/tls_client_context.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "exporter/web/config.h"

namespace nccl_pulse {
namespace {

// Where distributions keep the authorities that they trust: Debian, Fedora, Alpine, SUSE.
constexpr const char* kSystemFiles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                        "/etc/ssl/ca-bundle.pem"};

bool IsAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes;
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

class ClientTransport : public TlsClientTransport {
 public:
  ClientTransport(SSL_CTX* context, int fd, const std::string& host, bool is_insecure)
      : ssl_(SSL_new(context)) {
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) throw std::bad_alloc();
    SSL_set_connect_state(ssl_.get());
    const bool is_address = IsAddress(host);
    if (!is_address && SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) != 1) {
      throw std::bad_alloc();
    }
    if (is_insecure) return;
    X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_.get());
    const bool is_set = is_address
                            ? X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1
                            : X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size()) == 1;
    if (!is_set) throw std::bad_alloc();
  }

  ssize_t Receive(char* buffer, std::size_t size) override {
    ERR_clear_error();
    return Result(SSL_read(ssl_.get(), buffer, static_cast<int>(size)));
  }
  ssize_t Send(const char* data, std::size_t size) override {
    ERR_clear_error();
    return Result(
        SSL_write(ssl_.get(), data, static_cast<int>(std::min<std::size_t>(size, 1 << 30))));
  }
  short poll_events() const override { return events_; }
  bool has_pending() const override { return SSL_pending(ssl_.get()) > 0; }
  void Finish() override {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  std::string problem() const override { return problem_; }

 private:
  ssize_t Result(int result) {
    events_ = POLLIN;
    if (result > 0) return result;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_WANT_WRITE:
        events_ = POLLOUT;
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      case SSL_ERROR_SYSCALL:
        problem_ = errno == 0 || result == 0 ? "it ended the TLS connection"
                                             : std::string(std::strerror(errno));
        break;
      default:
        SayWhy();
        break;
    }
    errno = EIO;
    return -1;
  }

  void SayWhy() {
    const uint32_t error = ERR_peek_error();
    const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    const char* text = ERR_reason_error_string(error);
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      problem_ = absl::StrCat("its certificate is not trusted: ",
                              X509_verify_cert_error_string(SSL_get_verify_result(ssl_.get())));
    } else if (reason == SSL_R_WRONG_VERSION_NUMBER) {
      problem_ = "it does not speak TLS: use http";
    } else {
      problem_ = absl::StrCat("TLS failed: ", text != nullptr ? text : "unknown reason");
    }
    ERR_clear_error();
  }

  const bssl::UniquePtr<SSL> ssl_;
  short events_ = POLLIN;
  std::string problem_;
};

class BoringClient : public TlsClientContext {
 public:
  explicit BoringClient(bool is_insecure)
      : context_(SSL_CTX_new(TLS_method())), is_insecure_(is_insecure) {}

  bool Set(const std::string& ca_file, std::string* error) {
    if (context_ == nullptr) {
      *error = "out of memory";
      return false;
    }
    SSL_CTX* const context = context_.get();
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(context, is_insecure_ ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
    const bool is_set = is_insecure_ || AddAuthorities(ca_file, error);
    ERR_clear_error();
    return is_set;
  }

  std::unique_ptr<TlsClientTransport> Connect(int fd, const std::string& host) const override {
    return std::make_unique<ClientTransport>(context_.get(), fd, host, is_insecure_);
  }

 private:
  bool AddAuthorities(const std::string& ca_file, std::string* error) {
    if (!ca_file.empty()) {
      std::string text;
      if (!ReadSmallFile(ca_file, &text, error)) {
        *error = absl::StrCat("cannot read ", ca_file, ": ", *error);
        return false;
      }
      if (AddFrom(text) != 0) return true;
      *error = absl::StrCat(ca_file, " has no certificate in PEM form");
      return false;
    }
    for (const char* file : kSystemFiles) {
      std::string text;
      std::string ignored;
      if (ReadSmallFile(file, &text, &ignored) && AddFrom(text) != 0) return true;
    }
    *error = "this system has no file of trusted authorities; name one with --ca-cert";
    return false;
  }

  int AddFrom(const std::string& text) {
    const bssl::UniquePtr<BIO> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    int added = 0;
    while (true) {
      const bssl::UniquePtr<X509> next(
          PEM_read_bio_X509(memory.get(), nullptr, &NoPassphrase, nullptr));
      if (next == nullptr) return added;
      added += X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), next.get());
    }
  }

  static int NoPassphrase(char*, int, int, void*) { return 0; }

  const bssl::UniquePtr<SSL_CTX> context_;
  const bool is_insecure_;
};

}  // namespace

std::shared_ptr<const TlsClientContext> TlsClientContext::Make(const std::string& ca_file,
                                                               bool is_insecure,
                                                               std::string* error) {
  auto context = std::make_shared<BoringClient>(is_insecure);
  if (!context->Set(ca_file, error)) return nullptr;
  return context;
}

}  // namespace nccl_pulse
