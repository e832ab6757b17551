// Byte operations on every chunk: base64, WebSocket masking and the ASCII test.
#ifndef PROCWIRE_NET_BYTE_CODEC_H
#define PROCWIRE_NET_BYTE_CODEC_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace procwire {

// Encodes with the standard alphabet and padding. `to` must hold 4 * ceil(length / 3) bytes. Returns the number of
// bytes written.
size_t base64Encode(const uint8_t* from, size_t length, uint8_t* to);

// Decodes strictly: the length is a multiple of four, padding only at the end, unused bits zero, no white space. `to`
// must hold 3 * length / 4 bytes; it may be `from`. Returns the number of bytes written, or -1.
ptrdiff_t base64Decode(const uint8_t* from, size_t length, uint8_t* to);

// Describes invalid base64 like `src/protocol/base64.ts`; empty if it is valid.
std::string base64Problem(const uint8_t* text, size_t length);

// XORs with the four bytes of `key`, highest first.
void unmask(uint8_t* bytes, size_t length, uint32_t key);

bool isAscii(const char* text, size_t length);

// For tests: reports whether wide instructions are used.
bool usesWideInstructions();
void disableWideInstructions(bool disabled);

}  // namespace procwire

#endif
