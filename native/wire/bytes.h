// Byte work that a server does for every chunk: base64 both ways, the XOR of WebSocket frames, and whether a text is
// ASCII.
#ifndef PROCWIRE_BYTES_H
#define PROCWIRE_BYTES_H

#include <cstddef>
#include <cstdint>

namespace procwire {

// Standard alphabet with padding. `to` must have room for 4 * ceil(length / 3) bytes; returns how many were written.
size_t base64Encode(const uint8_t* from, size_t length, uint8_t* to);

// Strict: length a multiple of four, padding where it belongs and nowhere else, unused bits zero, no white space.
// `to` must have room for 3 * length / 4 bytes. Returns how many were written, or -1.
ptrdiff_t base64Decode(const uint8_t* from, size_t length, uint8_t* to);

// XORs with the four bytes of `key`, highest first.
void unmask(uint8_t* bytes, size_t length, uint32_t key);

bool isAscii(const char* text, size_t length);

// For tests: whether the wide instructions are used here.
bool usesWideInstructions();
void disableWideInstructions(bool disabled);

}  // namespace procwire

#endif
