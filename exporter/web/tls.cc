#include "exporter/web/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/files.h"
#include "exporter/web/ssl_transport.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kQuietNs = 10'000'000'000;
// Limits a client's certificates, which are read before the client is trusted.
constexpr std::size_t kMaxCertificateBytes = 64 << 10;
constexpr int kMaxChainLength = 8;
constexpr std::string_view kHttp11 = "\x08http/1.1";
// The answer ends with the connection, so it needs no length.
constexpr std::string_view kSpeakTls =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    "\r\nThis endpoint speaks TLS: use https.\n";

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns the first error of the library's queue, and empties the queue.
std::string LibraryError() {
  const uint32_t error = ERR_peek_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "unknown reason";
}

std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "a client";
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* ip = nullptr;
  if (address.ss_family == AF_INET) {
    ip = &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
  } else if (address.ss_family == AF_INET6) {
    ip = &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  }
  if (ip == nullptr || inet_ntop(address.ss_family, ip, text.data(), text.size()) == nullptr) {
    return "a client";
  }
  return text.data();
}

class TlsTransport : public SslTransport {
 public:
  TlsTransport(SSL_CTX* context, int fd, HandshakeLog* log)
      : SslTransport(context, fd), fd_(fd), peer_(PeerOf(fd)), log_(log) {
    SSL_set_accept_state(ssl());
  }

 private:
  void Fail(int error, int /*result*/) override {
    if (error != SSL_ERROR_SSL) return;
    const int reason = Reason();
    if (reason == SSL_R_HTTP_REQUEST) TellToSpeakTls();
    if (!SSL_in_init(ssl())) return;
    std::string text = LibraryError();
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      const long result = SSL_get_verify_result(ssl());
      absl::StrAppend(&text, " (", X509_verify_cert_error_string(result), ")");
    } else if (reason == SSL_R_BAD_PACKET_LENGTH) {
      // OpenSSL's clients send this alert before encryption starts; BoringSSL does not read it
      // then.
      text += " (an alert in clear text: as a rule the client does not trust the certificate)";
    }
    log_->Failed(peer_, text);
  }

  void TellToSpeakTls() {
    [[maybe_unused]] ssize_t size = send(fd_, kSpeakTls.data(), kSpeakTls.size(), MSG_NOSIGNAL);
    // Closing with unread data would discard the answer.
    std::array<char, 8192> rest;
    size = recv(fd_, rest.data(), rest.size(), 0);
  }

  const int fd_;
  const std::string peer_;  // not available from the system once the client is gone
  HandshakeLog* const log_;
};

class BoringContext : public TlsContext {
 public:
  BoringContext(const TlsConfig& config, std::vector<std::string>* notes)
      : config_(config), notes_(notes), context_(SSL_CTX_new(TLS_method())) {}

  bool Set(std::string* error) {
    if (context_ == nullptr) {
      *error = "out of memory";
      return false;
    }
    SSL_CTX_set_mode(context_.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context_.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_alpn_select_cb(context_.get(), &SelectProtocol, nullptr);
    const bool set =
        SetVersions(error) && SetCertificate(error) && SetKey(error) && SetClientAuth(error);
    ERR_clear_error();
    notes_ = nullptr;
    return set;
  }

  std::unique_ptr<Transport> Accept(int fd, HandshakeLog* log) const override {
    return std::make_unique<TlsTransport>(context_.get(), fd, log);
  }

 private:
  using Certificates = std::vector<bssl::UniquePtr<X509>>;

  bool Problem(std::string_view key, std::string_view what, std::string* error) const {
    *error = absl::StrCat("tls_server_config.", key, ": ", what);
    return false;
  }

  bool SetVersions(std::string* error) {
    SSL_CTX* context = context_.get();
    if (SSL_CTX_set_min_proto_version(context, config_.min_version) != 1 ||
        SSL_CTX_set_max_proto_version(context, config_.max_version) != 1) {
      return Problem("min_version", LibraryError(), error);
    }
    if (!config_.cipher_suites.empty() &&
        SSL_CTX_set_strict_cipher_list(context,
                                       absl::StrJoin(config_.cipher_suites, ":").c_str()) != 1) {
      return Problem("cipher_suites", LibraryError(), error);
    }
    if (config_.prefer_server_cipher_suites) {
      SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
    }
    if (!config_.curves.empty() &&
        SSL_CTX_set1_curves_list(context, absl::StrJoin(config_.curves, ":").c_str()) != 1) {
      return Problem("curve_preferences", LibraryError(), error);
    }
    return true;
  }

  // Reads at least one certificate, or reports an error.
  bool ReadCertificates(std::string_view key, const std::string& path, Certificates* certificates,
                        std::string* error) const {
    std::string text;
    if (!ReadRegularFile(path, kMostSecretBytes, &text, error)) {
      return Problem(key, absl::StrCat("cannot read ", path, ": ", *error), error);
    }
    const bssl::UniquePtr<BIO> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    while (true) {
      bssl::UniquePtr<X509> next(PEM_read_bio_X509(memory.get(), nullptr, &NoPassphrase, nullptr));
      if (next == nullptr) break;
      certificates->push_back(std::move(next));
    }
    const uint32_t last = ERR_peek_last_error();
    const bool at_end =
        ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
    const std::string reason = LibraryError();
    if (!at_end) {
      return Problem(key, absl::StrCat(path, " has a damaged certificate: ", reason), error);
    }
    if (certificates->empty()) {
      return Problem(key, absl::StrCat(path, " has no certificate in PEM form"), error);
    }
    return true;
  }

  bool SetCertificate(std::string* error) {
    Certificates chain;
    if (!ReadCertificates("cert_file", config_.cert_file, &chain, error)) return false;
    if (SSL_CTX_use_certificate(context_.get(), chain[0].get()) != 1) {
      return Problem("cert_file", absl::StrCat(config_.cert_file, ": ", LibraryError()), error);
    }
    for (std::size_t i = 1; i < chain.size(); ++i) {
      if (SSL_CTX_add1_chain_cert(context_.get(), chain[i].get()) != 1) {
        return Problem("cert_file", absl::StrCat(config_.cert_file, ": ", LibraryError()), error);
      }
    }
    if (X509_cmp_current_time(X509_get0_notAfter(chain[0].get())) < 0) {
      notes_->push_back(absl::StrCat("tls_server_config.cert_file: the certificate in ",
                                     config_.cert_file, " has expired"));
    }
    return true;
  }

  bool SetKey(std::string* error) {
    std::string text;
    if (!ReadRegularFile(config_.key_file, kMostSecretBytes, &text, error)) {
      return Problem("key_file", absl::StrCat("cannot read ", config_.key_file, ": ", *error),
                     error);
    }
    const bssl::UniquePtr<BIO> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    const bssl::UniquePtr<EVP_PKEY> key(
        PEM_read_bio_PrivateKey(memory.get(), nullptr, &NoPassphrase, nullptr));
    OPENSSL_cleanse(text.data(), text.size());
    if (key == nullptr) {
      return Problem(
          "key_file",
          absl::StrCat(config_.key_file,
                       " has no private key in PEM form, or one with a passphrase, which "
                       "is not supported"),
          error);
    }
    if (SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
      return Problem("key_file",
                     absl::StrCat(config_.key_file, " does not belong to the certificate in ",
                                  config_.cert_file),
                     error);
    }
    return true;
  }

  bool SetClientAuth(std::string* error) {
    SSL_CTX* context = context_.get();
    int mode = SSL_VERIFY_NONE;
    switch (config_.client_auth) {
      case ClientAuth::kNone:
        break;
      case ClientAuth::kRequest:
      case ClientAuth::kVerifyIfGiven:
        mode = SSL_VERIFY_PEER;
        break;
      case ClientAuth::kRequireAny:
      case ClientAuth::kVerify:
        mode = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
        break;
    }
    SSL_CTX_set_verify(context, mode, nullptr);
    SSL_CTX_set_verify_depth(context, kMaxChainLength);
    SSL_CTX_set_max_cert_list(context, kMaxCertificateBytes);
    SSL_CTX_set_cert_verify_callback(context, &VerifyClient, this);
    if (config_.client_ca_file.empty()) return true;
    Certificates authorities;
    if (!ReadCertificates("client_ca_file", config_.client_ca_file, &authorities, error)) {
      return false;
    }
    for (const bssl::UniquePtr<X509>& authority : authorities) {
      if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
          SSL_CTX_add_client_CA(context, authority.get()) != 1) {
        return Problem("client_ca_file", absl::StrCat(config_.client_ca_file, ": ", LibraryError()),
                       error);
      }
    }
    return true;
  }

  // Returns 1 if the client is accepted.
  static int VerifyClient(X509_STORE_CTX* store, void* self) {
    const TlsConfig& config = static_cast<const BoringContext*>(self)->config_;
    if (config.client_auth != ClientAuth::kVerify &&
        config.client_auth != ClientAuth::kVerifyIfGiven) {
      X509_STORE_CTX_set_error(store, X509_V_OK);
      return 1;
    }
    if (X509_verify_cert(store) != 1) return 0;
    if (config.client_allowed_sans.empty() ||
        HasName(X509_STORE_CTX_get0_cert(store), config.client_allowed_sans)) {
      return 1;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  }

  // True if one of the subject's alternative names is in `allowed`, by exact comparison.
  static bool HasName(X509* certificate, const std::vector<std::string>& allowed) {
    const bssl::UniquePtr<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
    if (names == nullptr) return false;
    for (const GENERAL_NAME* name : names.get()) {
      if (std::find(allowed.begin(), allowed.end(), TextOf(*name)) != allowed.end()) return true;
    }
    return false;
  }

  static std::string TextOf(const GENERAL_NAME& name) {
    switch (name.type) {
      case GEN_DNS:
      case GEN_EMAIL:
      case GEN_URI:
        return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.ia5)),
                static_cast<std::size_t>(ASN1_STRING_length(name.d.ia5))};
      case GEN_IPADD: {
        const int size = ASN1_STRING_length(name.d.iPAddress);
        std::array<char, INET6_ADDRSTRLEN> text{};
        const int family = size == 4 ? AF_INET : AF_INET6;
        if (size != 4 && size != 16) return "";
        inet_ntop(family, ASN1_STRING_get0_data(name.d.iPAddress), text.data(), text.size());
        return text.data();
      }
      default:
        return "";
    }
  }

  static int SelectProtocol(SSL*, const uint8_t** chosen, uint8_t* chosen_size,
                            const uint8_t* offered, unsigned offered_size, void*) {
    uint8_t* found = nullptr;
    const int result =
        SSL_select_next_proto(&found, chosen_size, reinterpret_cast<const uint8_t*>(kHttp11.data()),
                              kHttp11.size(), offered, offered_size);
    *chosen = found;
    return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
  }

  static int NoPassphrase(char*, int, int, void*) { return 0; }

  const TlsConfig config_;
  std::vector<std::string>* notes_;
  const bssl::UniquePtr<SSL_CTX> context_;
};

}  // namespace

void HandshakeLog::Failed(const std::string& client, const std::string& reason) {
  const int64_t now = NowNs();
  if (now < quiet_until_ns_) {
    ++skipped_;
    return;
  }
  log_(LogLevel::kWarning,
       absl::StrCat("TLS handshake with ", client, " failed: ", reason,
                    skipped_ > 0 ? absl::StrCat("; ", skipped_, " more not logged") : ""));
  quiet_until_ns_ = now + kQuietNs;
  skipped_ = 0;
}

std::shared_ptr<const TlsContext> TlsContext::Make(const TlsConfig& config,
                                                   std::vector<std::string>* notes,
                                                   std::string* error) {
  auto context = std::make_shared<BoringContext>(config, notes);
  if (!context->Set(error)) return nullptr;
  return context;
}

}  // namespace nccl_pulse
