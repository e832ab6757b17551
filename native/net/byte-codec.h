// Byte operations on every chunk: base64, WebSocket masking and the ASCII test.
#ifndef PROCWIRE_NET_BYTE_CODEC_H
#define PROCWIRE_NET_BYTE_CODEC_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace procwire {

constexpr size_t base64EncodedLength(size_t length) { return (length + 2) / 3 * 4; }
// Returns the decoded length of a valid text.
size_t base64DecodedLength(std::string_view text);

// Encodes with the standard alphabet and padding. `to` must hold the encoded length. Returns the number of bytes
// written.
size_t base64Encode(const uint8_t* from, size_t length, uint8_t* to);

// Decodes strictly: the length is a multiple of four, padding only at the end, unused bits zero, no white space. `to`
// must hold the decoded length; it may be `from`. Returns the number of bytes written, or -1.
ptrdiff_t base64Decode(const uint8_t* from, size_t length, uint8_t* to);

// Describes invalid base64 like `src/protocol/base64.ts`; empty if it is valid.
std::string base64Problem(const uint8_t* text, size_t length);

// XORs with the four bytes of `key`, highest first.
void unmask(uint8_t* bytes, size_t length, uint32_t key);

bool isAscii(const char* text, size_t length);

// For tests: uses only the portable implementations, as on an older processor.
void disableWideInstructions(bool disabled);

}  // namespace procwire

#endif
