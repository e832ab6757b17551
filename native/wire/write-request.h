// Recognises the one request that carries bulk input, `process/write`, by its bytes, so that neither a long string nor
// a parsed tree is ever made of it.
#pragma once

#include <node_api.h>
#include <stddef.h>
#include <stdint.h>

#include <string_view>

namespace procwire {

struct WriteRequest {
  // The id as it stands in the text, with its quotes when it is a string.
  std::string_view id;
  std::string_view processId;
  std::string_view writeId;
  // Base64, not yet checked.
  std::string_view chunk;
};

// True when the text is a `process/write` in its plain form: the usual members, each once, no escapes, printable ASCII.
// Everything else is left to the general parser, which also words the refusals.
bool parseWriteRequest(std::string_view text, WriteRequest& request);

// How many bytes a chunk is, should it be base64.
size_t decodedLength(std::string_view base64);

// Its members as JavaScript has them: id, processId, writeId or undefined, decoded chunk. False when that is no base64.
bool writeRequestMembers(napi_env env, const WriteRequest& request, napi_value members[4]);

}  // namespace procwire
