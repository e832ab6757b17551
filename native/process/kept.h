// A kept process's memory, as its server sees it (programs/kept-memory.h says what is in it).
#ifndef PROCWIRE_KEPT_H
#define PROCWIRE_KEPT_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "programs/kept-memory.h"

namespace procwire {

struct SpawnRequest;

// A write's id, or none. Ids are as long as clients like, so what is remembered is a hash of 128 bits.
struct KeptWriteId {
  kept_id id = {{0, 0}};

  KeptWriteId() = default;
  explicit KeptWriteId(std::string_view text);
  bool isSome() const { return id.hash[0] != 0 || id.hash[1] != 0; }
  bool is(const kept_id& other) const { return id.hash[0] == other.hash[0] && id.hash[1] == other.hash[1]; }
};

class Kept {
 public:
  // Makes the memory of a process that is about to be started; null with errno set.
  static std::unique_ptr<Kept> make(const std::string& record, uint64_t mostOutputBytes);
  // Takes over the memory and the descriptors of a process that an earlier server started; null when it is unreadable.
  static std::unique_ptr<Kept> adopt(uint64_t id, int memory, int toKeeper, int toServer);
  ~Kept();

  uint64_t id() const { return id_; }
  kept_header& header() { return *header_; }
  int toServer() const { return toServer_; }
  // The descriptors besides the process's own; the memory's is closed by `started`.
  int memory() const { return memory_; }
  int toKeeper() const { return toKeeper_; }
  // The process runs: it is recorded, and the keeper is told.
  bool started(const SpawnRequest& request);

  // ---- output. Room for one read of at most KEPT_READ_BYTES; `commit` or `nothing` follows.
  char* reserve();
  void commit(kept_stream stream, size_t length);
  void nothing() { KEPT_STORE(header_->intent, 0u); }
  // Its exit or its close was emitted.
  void noteExit(std::string_view status);
  void noteClosed();
  bool exitWasTold() const { return wasTold(header_->exit_seq); }
  bool closeWasTold() const { return wasTold(header_->close_seq); }
  // All that is there, oldest first.
  void each(const std::function<void(const kept_entry& entry, const char* bytes)>& tell) const;

  // ---- input
  bool knows(const KeptWriteId& id) const;
  // A write begins, or continues one that an earlier server began: returns how many of its bytes are in already.
  size_t beginWrite(const KeptWriteId& id, size_t length);
  // Takes as much as there is room for.
  size_t put(const char* bytes, size_t length);
  // The whole write is in.
  void endWrite(const KeptWriteId& id);
  size_t room() const { return KEPT_INPUT_BYTES - static_cast<size_t>(header_->in_head - KEPT_LOAD(header_->in_tail)); }
  bool inputEnded() const { return KEPT_LOAD(header_->in_ended) != 0; }
  // Wakes the keeper.
  void poke();
  // Takes the keeper's wake-up; true when the keeper cannot keep it, and has ended it.
  bool takePoke();
  // It was killed by the keeper, which cannot note that.
  void noteKilled();

  // ---- the end
  bool hasEnded() const { return KEPT_LOAD(header_->ended) != 0; }

 private:
  Kept() = default;
  bool map(size_t bytes);
  void makeRoom(size_t bytes);
  void append(kept_stream stream, size_t length);
  bool wasTold(uint64_t seq) const { return seq != 0 && seq <= lastSeq_; }
  char* at(uint64_t position) const { return output_ + position % KEPT_OUTPUT_BYTES; }

  uint64_t id_ = 0;
  int memory_ = -1;
  int toKeeper_ = -1;
  int toServer_ = -1;
  kept_header* header_ = nullptr;
  kept_id* ids_ = nullptr;
  std::unordered_set<uint64_t> known_;  // a part of each id in the table: most writes are new, and need no search
  size_t frontBytes_ = 0;
  char* output_ = nullptr;  // mapped twice in a row
  char* input_ = nullptr;   // the same
  uint64_t lastSeq_ = 0;
  uint64_t totalBytes_ = 0;
};

}  // namespace procwire

#endif
