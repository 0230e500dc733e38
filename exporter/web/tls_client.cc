#include "exporter/web/tls_client.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "absl/strings/str_cat.h"

namespace nccl_pulse {
namespace {

// Where distributions keep the authorities that they trust: Debian and Ubuntu, Red Hat and Fedora,
// SUSE.
constexpr const char* kSystemAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt",
                                              "/etc/pki/tls/certs/ca-bundle.crt",
                                              "/etc/ssl/ca-bundle.pem"};

// The first error in the library's queue, which is emptied.
std::string LibraryError() {
  const char* reason = ERR_reason_error_string(ERR_peek_error());
  ERR_clear_error();
  return reason != nullptr ? reason : "unknown reason";
}

bool IsIpAddress(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return inet_pton(AF_INET, name.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
}

class ClientTransport : public Transport {
 public:
  ClientTransport(SSL_CTX* context, int fd, const std::string& name, std::string* problem)
      : problem_(problem), ssl_(SSL_new(context)) {
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) throw std::bad_alloc();
    SSL_set_connect_state(ssl_.get());
    if (IsIpAddress(name)) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), name.c_str());
    } else {
      SSL_set_tlsext_host_name(ssl_.get(), name.c_str());
      SSL_set1_host(ssl_.get(), name.c_str());
    }
  }

  ssize_t Receive(char* buffer, std::size_t size) override {
    ERR_clear_error();
    return Result(SSL_read(ssl_.get(), buffer, static_cast<int>(size)));
  }
  ssize_t Send(const char* data, std::size_t size) override {
    ERR_clear_error();
    return Result(SSL_write(ssl_.get(), data, static_cast<int>(size)));
  }
  short poll_events() const override { return events_; }
  bool has_pending() const override { return SSL_pending(ssl_.get()) > 0; }
  void Finish() override { SSL_shutdown(ssl_.get()); }

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
      case SSL_ERROR_SSL:
        Fail();
        break;
      default:
        *problem_ = "the connection ended within TLS";
        break;
    }
    errno = EIO;
    return -1;
  }

  void Fail() {
    const uint32_t error = ERR_peek_error();
    const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    *problem_ = absl::StrCat("TLS: ", LibraryError());
    if (reason == SSL_R_WRONG_VERSION_NUMBER) *problem_ += " (does it speak plain http?)";
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      const long result = SSL_get_verify_result(ssl_.get());
      absl::StrAppend(problem_, " (", X509_verify_cert_error_string(result),
                      "; --ca-cert names who may have signed it, --server-name its name)");
    }
  }

  std::string* const problem_;
  const bssl::UniquePtr<SSL> ssl_;
  short events_ = POLLOUT;
};

class BoringClient : public TlsClient {
 public:
  explicit BoringClient(const TlsClientConfig& config)
      : config_(config), context_(SSL_CTX_new(TLS_method())) {}

  bool Set(std::string* error) {
    SSL_CTX* context = context_.get();
    if (context == nullptr) throw std::bad_alloc();
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    std::string authorities = config_.ca_file;
    for (const char* file : kSystemAuthorities) {
      if (authorities.empty() && access(file, R_OK) == 0) authorities = file;
    }
    if (authorities.empty()) {
      *error = "this system has no list of authorities: name them with --ca-cert";
      return false;
    }
    if (SSL_CTX_load_verify_locations(context, authorities.c_str(), nullptr) != 1) {
      return Problem("--ca-cert", authorities, error);
    }
    if (config_.cert_file.empty() != config_.key_file.empty()) {
      *error = "--cert and --key belong together";
      return false;
    }
    if (config_.cert_file.empty()) return true;
    if (SSL_CTX_use_certificate_chain_file(context, config_.cert_file.c_str()) != 1) {
      return Problem("--cert", config_.cert_file, error);
    }
    if (SSL_CTX_use_PrivateKey_file(context, config_.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      return Problem("--key", config_.key_file, error);
    }
    return true;
  }

  std::unique_ptr<Transport> Connect(int fd, const std::string& host,
                                     std::string* problem) const override {
    return std::make_unique<ClientTransport>(context_.get(), fd,
                                             config_.name.empty() ? host : config_.name, problem);
  }

 private:
  static bool Problem(const char* flag, const std::string& file, std::string* error) {
    *error = absl::StrCat(flag, "=", file, ": ", LibraryError());
    return false;
  }

  const TlsClientConfig config_;
  const bssl::UniquePtr<SSL_CTX> context_;
};

}  // namespace

std::unique_ptr<TlsClient> TlsClient::Make(const TlsClientConfig& config, std::string* error) {
  auto client = std::make_unique<BoringClient>(config);
  if (!client->Set(error)) return nullptr;
  return client;
}

}  // namespace nccl_pulse
