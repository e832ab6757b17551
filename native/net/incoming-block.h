// A large binary message that is received into the memory of its JavaScript buffer, without a copy.
#ifndef PROCWIRE_NET_INCOMING_BLOCK_H
#define PROCWIRE_NET_INCOMING_BLOCK_H

#include <node_api.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "core/napi.h"
#include "net/frame-header.h"

namespace procwire {

class IncomingBlock {
 public:
  // Allocates the buffer and copies the first bytes of the payload into it. Returns false if the allocation fails.
  bool begin(napi_env env, const FrameHeader& header, const char* first, size_t firstBytes);

  explicit operator bool() const { return data_ != nullptr; }
  size_t totalBytes() const { return totalBytes_; }
  // Returns the memory of the missing bytes.
  struct iovec missing() const {
    return {data_ + receivedBytes_, totalBytes_ - receivedBytes_};
  }
  void add(size_t bytes) { receivedBytes_ += bytes; }
  bool isComplete() const { return receivedBytes_ == totalBytes_; }
  // Returns the buffer of a complete message, within the handle scope of the caller.
  napi_value take();
  void reset();

 private:
  ValueRef buffer_;
  char* data_ = nullptr;
  size_t totalBytes_ = 0;
  size_t receivedBytes_ = 0;
  uint32_t key_ = 0;
};

}  // namespace procwire

#endif
