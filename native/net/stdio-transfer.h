// Transfer of stdin and stdout from a bridge to the server that the bridge has connected to.
//
// The bridge (`procwire connect`) passes both descriptors over its Unix connection, before any other byte. The server
// confirms the transfer and then serves the client on these descriptors. The Unix connection carries no further bytes:
// its end is the end of the client's connection, and the reverse.
#ifndef PROCWIRE_NET_STDIO_TRANSFER_H
#define PROCWIRE_NET_STDIO_TRANSFER_H

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "core/fd.h"

namespace procwire {

// Sent with the descriptors, and as the confirmation. No HTTP request starts with it.
constexpr std::string_view kTransferLine = "procwire stdio transfer 1\n";

// Descriptors that a bridge has passed.
struct TransferredStdio {
  UniqueFd input;
  UniqueFd output;

  explicit operator bool() const { return static_cast<bool>(input); }
  // Makes both descriptors non-blocking and enlarges pipes. Returns false unless each is a pipe or a connected Unix
  // socket.
  bool prepare() const;
};

// Sends the line and both descriptors. Returns 0 or the errno.
int sendStdio(int connection, int input, int output);
// Confirms a transfer. Returns 0 or the errno.
int confirmTransfer(int connection);
// Reads like read(2), without blocking. `passed` gets the first two descriptors that came with the bytes; others are
// closed.
ssize_t readWithStdio(int connection, char* bytes, size_t length, TransferredStdio& passed);

}  // namespace procwire

#endif
