// The server's view of the state segment of a persistent process (programs/state-segment-layout.h).
#ifndef PROCWIRE_PROCESS_STATE_SEGMENT_H
#define PROCWIRE_PROCESS_STATE_SEGMENT_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/fd.h"
#include "programs/state-segment-layout.h"

namespace procwire {

struct SpawnRequest;

// Hash of a write id, or none. Ids have any length, so 128 bits of hash are stored instead.
struct WriteIdHash {
  write_id_hash id = {{0, 0}};

  WriteIdHash() = default;
  explicit WriteIdHash(std::string_view text);
  bool isSome() const { return id.hash[0] != 0 || id.hash[1] != 0; }
  bool is(const write_id_hash& other) const { return id.hash[0] == other.hash[0] && id.hash[1] == other.hash[1]; }
};

class StateSegment {
 public:
  // Creates the segment of a process that is about to start. Returns null with errno set.
  static std::unique_ptr<StateSegment> create(const std::string& record, uint64_t maxOutputBytes);
  // Attaches to the segment of a process that an earlier server started and takes ownership of the descriptors. Returns
  // null if it is unreadable.
  static std::unique_ptr<StateSegment> attach(uint64_t id, UniqueFd segmentFd, UniqueFd supervisorWakeFd,
                                              UniqueFd serverWakeFd);
  ~StateSegment();

  // Called when the supervisor has rejected a process of this server. Its child finds out by `consumeWake`.
  static void onRejected(uint64_t id);

  uint64_t id() const { return id_; }
  segment_header& header() { return *header_; }
  int serverWakeFd() const { return serverWakeFd_.get(); }
  // Records the started process and hands it to the supervisor. Returns false if that fails.
  bool started(const SpawnRequest& request);

  // ---- output. `reserve` returns space for one read of at most SEGMENT_READ_BYTES; `commit` or `cancelReserve`
  // follows.
  char* reserve();
  void commit(segment_stream stream, size_t length);
  void cancelReserve() { SEGMENT_STORE(header_->read_in_progress, 0u); }
  // Record that the exit or close event was emitted.
  void recordExit(std::string_view status);
  void recordClosed();
  bool isExitEmitted() const { return isEmitted(header_->exit_seq); }
  bool isCloseEmitted() const { return isEmitted(header_->close_seq); }
  // Visits all retained entries, oldest first.
  void forEachEntry(const std::function<void(const segment_entry& entry, const char* bytes)>& visit) const;

  // ---- input
  bool hasWriteId(const WriteIdHash& id) const;
  // Begins a write, or continues one of an earlier server. Returns the number of its bytes that are already in the
  // ring.
  size_t beginWrite(const WriteIdHash& id, size_t length);
  // Copies as many bytes as fit and returns their number.
  size_t writeInput(const char* bytes, size_t length);
  // Stores the write id of a completely accepted write.
  void endWrite(const WriteIdHash& id);
  size_t inputCapacity() const {
    return SEGMENT_INPUT_BYTES - static_cast<size_t>(header_->in_head - SEGMENT_LOAD(header_->in_tail));
  }
  bool inputEnded() const { return SEGMENT_LOAD(header_->in_ended) != 0; }
  void wakeSupervisor();
  // Clears the wake-up. Returns true if the supervisor rejected the process.
  bool consumeWake();
  // Records an exit by SIGKILL that the supervisor cannot record.
  void recordKilled();

  // ---- exit
  bool hasEnded() const { return SEGMENT_LOAD(header_->ended) != 0; }

 private:
  explicit StateSegment(uint64_t id);
  bool map(size_t bytes);
  void evictOutput(size_t bytes);
  void append(segment_stream stream, size_t length);
  bool isEmitted(uint64_t seq) const { return seq != 0 && seq <= lastSeq_; }
  char* at(uint64_t position) const { return output_ + position % SEGMENT_OUTPUT_BYTES; }

  const uint64_t id_;
  UniqueFd segmentFd_;  // closed once the segment is mapped and the supervisor has it
  UniqueFd supervisorWakeFd_;
  UniqueFd serverWakeFd_;
  segment_header* header_ = nullptr;
  write_id_hash* ids_ = nullptr;
  std::unordered_set<uint64_t> known_;  // first hash half of each stored id; most writes are new and need no search
  size_t frontBytes_ = 0;
  char* output_ = nullptr;  // mapped twice in a row
  char* input_ = nullptr;   // mapped twice in a row
  uint64_t lastSeq_ = 0;
  uint64_t totalBytes_ = 0;
};

}  // namespace procwire

#endif
