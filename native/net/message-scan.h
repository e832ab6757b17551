// Finds the tokens of a large JSON message.
#ifndef PROCWIRE_NET_MESSAGE_SCAN_H
#define PROCWIRE_NET_MESSAGE_SCAN_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace procwire {

// Kind of a token. `src/native/large-messages.ts` uses the names in scan-job.cc, in this order.
enum class TokenKind : uint32_t {
  kObject,
  kObjectEnd,
  kArray,
  kArrayEnd,
  // Strings and keys, without quotes. A raw one has its quotes and escapes, which JavaScript resolves.
  kAscii,
  kUtf8,
  kRaw,
  kAsciiKey,
  kUtf8Key,
  kRawKey,
  kNumber,
  kTrue,
  kFalse,
  kNull,
  // Decoded base64, and the index of the text that describes invalid base64.
  kBytes,
  kInvalidBase64,
};

// Limits of a message; `src/protocol/json-text.ts` defines them.
struct ScanLimits {
  uint32_t values;
  uint32_t depth;
};

struct ScanResult {
  // Empty for a valid message.
  std::string problem;
  bool isUtf8 = true;
  // Three numbers per token: kind, start and end in the message.
  std::vector<uint32_t> tokens;
  // Texts of invalid base64.
  std::vector<std::string> texts;
};

// Checks the grammar, the limits and that keys are unique. Resolves the escapes of long strings and decodes the base64
// of `params` in place.
ScanResult scanMessage(uint8_t* text, size_t length, const ScanLimits& limits);

}  // namespace procwire

#endif
