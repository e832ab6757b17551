// Encoding and escapes of the strings of a JSON text.
#ifndef PROCWIRE_NET_JSON_STRINGS_H
#define PROCWIRE_NET_JSON_STRINGS_H

#include <cstddef>
#include <cstdint>

namespace procwire {

// Masks for eight bytes at a time.
constexpr uint64_t kOnes = 0x0101010101010101u;
constexpr uint64_t kHighBits = 0x8080808080808080u;

inline bool isDigit(uint8_t letter) { return letter >= '0' && letter <= '9'; }

bool isUtf8(const uint8_t* at, const uint8_t* end);

// Returns the value of four hexadecimal digits, or -1.
int hexUnit(const uint8_t* at, const uint8_t* end);

// Resolves valid escapes; the result is never longer, so `to` may be `from`. Sets `hasLoneSurrogate` if an escape has
// no UTF-8 form.
uint8_t* resolveEscapes(const uint8_t* from, const uint8_t* end, uint8_t* to, bool& hasLoneSurrogate);

}  // namespace procwire

#endif
