// The head of an HTTP request as libmicrohttpd has parsed it, and the check of what is invalid
// in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/identity/certificate_tenants.h"

struct MHD_Connection;

namespace telegrad {

struct HttpHead {
  std::string method;
  std::string path;  // without a query, escapes undone but those of '/' and zero
  std::string peer;
  std::map<std::string, std::string> headers;  // by name in small letters; the last of a name
  std::vector<std::string> authorizations;     // all of these
  bool certified = false;                      // by a client certificate that was verified
  std::vector<CertificateName> names = {};     // of it
  std::string certificate = {};                // itself, in PEM
};

HttpHead ReadHead(MHD_Connection* connection, const char* url, const char* method);

// The one length of the body, -1 where it comes in chunks. Whatever another server on the way could
// read in two ways is refused, because what follows would be somebody else's request to it.
absl::StatusOr<int64_t> BodyLength(const HttpHead& head, MHD_Connection* connection);

// Undoes the escapes of a path in place, but not those of a slash, which would divide it in another
// way than its sender meant, and of a zero, behind which nothing would be seen of it. Of the form
// that the library wants.
size_t UnescapePath(void* unused, MHD_Connection* connection, char* text);

}  // namespace telegrad
