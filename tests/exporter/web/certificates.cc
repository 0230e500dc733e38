#include "tests/exporter/web/certificates.h"

#include <openssl/bn.h>
#include <openssl/ec_key.h>
#include <openssl/evp.h>
#include <openssl/nid.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>

namespace nccl_pulse {
namespace {

struct Identity {
  bssl::UniquePtr<EVP_PKEY> key;
  bssl::UniquePtr<X509> certificate;
};

void Check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "cannot make certificates: %s\n", what);
  std::abort();
}

bssl::UniquePtr<EVP_PKEY> MakeKey(bool rsa) {
  bssl::UniquePtr<EVP_PKEY> key(EVP_PKEY_new());
  if (rsa) {
    bssl::UniquePtr<RSA> pair(RSA_new());
    bssl::UniquePtr<BIGNUM> exponent(BN_new());
    Check(BN_set_word(exponent.get(), RSA_F4) == 1 &&
              RSA_generate_key_ex(pair.get(), 2048, exponent.get(), nullptr) == 1 &&
              EVP_PKEY_set1_RSA(key.get(), pair.get()) == 1,
          "RSA key");
  } else {
    bssl::UniquePtr<EC_KEY> pair(EC_KEY_new_by_curve_name(NID_X9_62_prime256v1));
    Check(EC_KEY_generate_key(pair.get()) == 1 && EVP_PKEY_set1_EC_KEY(key.get(), pair.get()) == 1,
          "EC key");
  }
  return key;
}

void AddExtension(X509* certificate, int nid, const char* value) {
  bssl::UniquePtr<X509_EXTENSION> extension(X509V3_EXT_nconf_nid(nullptr, nullptr, nid, value));
  Check(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

// Of `issuer`, or its own. `names` null: an authority.
Identity MakeIdentity(const char* common_name, const Identity* issuer, const char* names, bool rsa,
                      const char* not_after) {
  static long serial = 0;
  Identity identity{MakeKey(rsa), bssl::UniquePtr<X509>(X509_new())};
  X509* certificate = identity.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  ASN1_TIME_set_string(X509_getm_notBefore(certificate), "20000101000000Z");
  ASN1_TIME_set_string(X509_getm_notAfter(certificate), not_after);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const uint8_t*>(common_name), -1, -1, 0);
  const Identity& signer = issuer != nullptr ? *issuer : identity;
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate.get()));
  X509_set_pubkey(certificate, identity.key.get());
  if (names != nullptr) {
    AddExtension(certificate, NID_subject_alt_name, names);
  } else {
    AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    AddExtension(certificate, NID_key_usage, "critical,keyCertSign");
  }
  Check(X509_sign(certificate, signer.key.get(), EVP_sha256()) > 0, "signature");
  return identity;
}

void Write(const std::string& path, const Identity& identity) {
  for (const char* suffix : {".pem", ".key"}) {
    std::FILE* file = std::fopen((path + suffix).c_str(), "we");
    Check(file != nullptr, path.c_str());
    Check(suffix[1] == 'p' ? PEM_write_X509(file, identity.certificate.get()) == 1
                           : PEM_write_PrivateKey(file, identity.key.get(), nullptr, nullptr, 0,
                                                  nullptr, nullptr) == 1,
          path.c_str());
    std::fclose(file);
  }
}

}  // namespace

void WriteCertificates(const std::string& folder) {
  constexpr char kFarAway[] = "22000101000000Z";
  constexpr char kServer[] = "DNS:localhost,IP:127.0.0.1";
  const Identity ca = MakeIdentity("Test CA", nullptr, nullptr, false, kFarAway);
  const Identity other_ca = MakeIdentity("Other CA", nullptr, nullptr, false, kFarAway);
  const std::string path = folder + "/";
  Write(path + "ca", ca);
  Write(path + "other_ca", other_ca);
  Write(path + "server", MakeIdentity("server", &ca, kServer, false, kFarAway));
  Write(path + "rotated", MakeIdentity("rotated", &ca, kServer, false, kFarAway));
  Write(path + "rsa", MakeIdentity("rsa", &ca, kServer, true, kFarAway));
  Write(path + "expired", MakeIdentity("expired", &ca, kServer, false, "20010101000000Z"));
  Write(path + "client",
        MakeIdentity("client", &ca, "DNS:client.example,IP:127.0.0.1", false, kFarAway));
  Write(path + "stranger",
        MakeIdentity("stranger", &other_ca, "DNS:client.example", false, kFarAway));
}

}  // namespace nccl_pulse
