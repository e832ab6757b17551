// Recognizes `process/write`, the request that carries bulk input, by its bytes. This avoids a long string and a parsed
// JSON tree.
#ifndef PROCWIRE_NET_WRITE_REQUEST_H
#define PROCWIRE_NET_WRITE_REQUEST_H

#include <node_api.h>
#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace procwire {

struct WriteRequest {
  // JSON text of the id, with quotes if it is a string.
  std::string_view id;
  std::string_view processId;
  std::string_view writeId;
  // Base64, not yet validated.
  std::string_view chunk;
};

// Parses a `process/write` in its plain form: each member at most once, no escapes, printable ASCII. Returns false for
// everything else, which the general parser handles and rejects with proper errors.
bool parseWriteRequest(std::string_view text, WriteRequest& request);

// Converts the members to JavaScript: id, processId, writeId or undefined, decoded chunk. Returns false if the chunk is
// not base64.
bool writeRequestMembers(napi_env env, const WriteRequest& request, napi_value members[4]);

}  // namespace procwire

#endif
