#include "exporter/web/tls_client.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/web/ssl_transport.h"

namespace nccl_pulse {
namespace {

// Trusted certificate authorities of Debian, Fedora, Alpine and SUSE.
constexpr const char* kSystemFiles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                        "/etc/ssl/ca-bundle.pem"};

bool IsAddress(const std::string& host) {
  std::array<unsigned char, 16> bytes;
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

class ClientTransport : public SslTransport {
 public:
  ClientTransport(SSL_CTX* context, int fd, const std::string& host, bool is_insecure)
      : SslTransport(context, fd) {
    SSL_set_connect_state(ssl());
    const bool is_address = IsAddress(host);
    if (!is_address && SSL_set_tlsext_host_name(ssl(), host.c_str()) != 1) throw std::bad_alloc();
    if (is_insecure) return;
    X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl());
    const bool is_set = is_address
                            ? X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1
                            : X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size()) == 1;
    if (!is_set) throw std::bad_alloc();
  }

  std::string problem() const override { return problem_; }

 private:
  void Fail(int error, int result) override {
    if (error == SSL_ERROR_SYSCALL) {
      problem_ = errno == 0 || result == 0 ? "it ended the TLS connection" : ErrorText(errno);
      return;
    }
    const int reason = Reason();
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      problem_ = absl::StrCat("its certificate is not trusted: ",
                              X509_verify_cert_error_string(SSL_get_verify_result(ssl())),
                              " (set --ca-cert, or --server-name if the name differs)");
    } else if (reason == SSL_R_WRONG_VERSION_NUMBER) {
      problem_ = "it does not speak TLS: write http:// before the address, without TLS flags";
    } else {
      const char* text = ERR_reason_error_string(ERR_peek_error());
      problem_ = absl::StrCat("TLS: ", text != nullptr ? text : "unknown reason");
    }
    ERR_clear_error();
  }

  std::string problem_;
};

class BoringClient : public TlsClient {
 public:
  explicit BoringClient(const TlsClientConfig& config)
      : config_(config), context_(SSL_CTX_new(TLS_method())) {}

  bool Set(std::string* error) {
    if (context_ == nullptr) {
      *error = "out of memory";
      return false;
    }
    SSL_CTX* const context = context_.get();
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(context, config_.is_insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
    const bool is_set = (config_.is_insecure || AddAuthorities(error)) && AddCertificate(error);
    ERR_clear_error();
    return is_set;
  }

  std::unique_ptr<Transport> Connect(int fd, const std::string& host) const override {
    return std::make_unique<ClientTransport>(
        context_.get(), fd, config_.name.empty() ? host : config_.name, config_.is_insecure);
  }

 private:
  bool AddAuthorities(std::string* error) {
    if (!config_.ca_file.empty()) {
      return Load(config_.ca_file) || Problem("--ca-cert", config_.ca_file, error);
    }
    if (std::any_of(std::begin(kSystemFiles), std::end(kSystemFiles),
                    [this](const char* file) { return Load(file); })) {
      return true;
    }
    *error = "this system has no file of trusted authorities; name one with --ca-cert";
    return false;
  }

  bool Load(const std::string& file) {
    ERR_clear_error();
    return SSL_CTX_load_verify_locations(context_.get(), file.c_str(), nullptr) == 1;
  }

  // Adds the client's own certificate, for servers that ask for one.
  bool AddCertificate(std::string* error) {
    if (config_.cert_file.empty() != config_.key_file.empty()) {
      *error = "--cert and --key belong together";
      return false;
    }
    if (config_.cert_file.empty()) return true;
    if (SSL_CTX_use_certificate_chain_file(context_.get(), config_.cert_file.c_str()) != 1) {
      return Problem("--cert", config_.cert_file, error);
    }
    if (SSL_CTX_use_PrivateKey_file(context_.get(), config_.key_file.c_str(), SSL_FILETYPE_PEM) !=
        1) {
      return Problem("--key", config_.key_file, error);
    }
    return true;
  }

  static bool Problem(const char* flag, const std::string& file, std::string* error) {
    const char* reason = ERR_reason_error_string(ERR_peek_error());
    *error = absl::StrCat(flag, "=", file, ": ", reason != nullptr ? reason : "unknown reason");
    return false;
  }

  const TlsClientConfig config_;
  const bssl::UniquePtr<SSL_CTX> context_;
};

}  // namespace

std::shared_ptr<const TlsClient> TlsClient::Make(const TlsClientConfig& config,
                                                 std::string* error) {
  auto client = std::make_shared<BoringClient>(config);
  if (!client->Set(error)) return nullptr;
  return client;
}

}  // namespace nccl_pulse
