// Layout of the state segment of a persistent process: retained output, unwritten input and exit status. The supervisor
// and the current server share it, and it outlives every server. Included by C and C++.
//
//   header | write ids | record (JSON of the server) | output ring | input ring
//
// Positions in a ring only grow; the offset is the position modulo the ring size. The server maps both rings twice in a
// row, so that no access has to be split.
//
// Output: the server writes it. An entry is committed when `out_head` passes it. `read_in_progress` is set before a
// read of the process's output and cleared after the commit. A server that dies in between may have lost bytes, which
// the next server reports as a gap.
//
// Input: the server appends bytes and advances `in_head`. Only the supervisor writes them to the process and advances
// `in_tail`.
//
// At any time, one program writes a field. SEGMENT_STORE publishes all stores before it. It is for fields that the
// other program reads meanwhile with SEGMENT_LOAD, and for fields that make earlier stores valid: a server may be
// killed between any two stores, and the next server reads the segment after that.
#ifndef PROCWIRE_PROGRAMS_STATE_SEGMENT_LAYOUT_H
#define PROCWIRE_PROGRAMS_STATE_SEGMENT_LAYOUT_H

#include <stdint.h>

#define SEGMENT_MAGIC 0x6b707770u
// Raised whenever the layout changes; the record has its own version. A process with another version is killed and
// reported, because its state cannot be interpreted.
#define SEGMENT_VERSION 1u

// Holds twice the retention of a persistent process (src/exec/backend/persistent-process.ts), entry headers and one
// read.
#define SEGMENT_OUTPUT_BYTES (3u * 1024u * 1024u)
// Maximum bytes per read, a quarter of that retention. One entry is one chunk of the event log.
#define SEGMENT_READ_BYTES (256u * 1024u)
#define SEGMENT_INPUT_BYTES (256u * 1024u)
// As in src/exec/backend/input-limits.ts.
#define SEGMENT_WRITE_IDS 4096u
#define SEGMENT_MAX_RECORD_BYTES (4u * 1024u * 1024u)
// The largest page size of the supported processors: arm64 kernels have 4, 16 or 64 KiB.
#define SEGMENT_PAGE_BYTES 65536u
// An exit status is a short JSON text.
#define SEGMENT_STATUS_BYTES 512u

enum segment_stream {
  SEGMENT_STDOUT = 0,
  SEGMENT_STDERR = 1,
  SEGMENT_TERMINAL = 2,
  SEGMENT_EXIT = 3,
  SEGMENT_CLOSE = 4,
  SEGMENT_GAP = 5
};

struct segment_entry {
  uint64_t seq;
  uint64_t offset;  // output bytes before this entry
  uint32_t length;
  uint32_t stream;  // enum segment_stream
};

struct write_id_hash {
  uint64_t hash[2];
};

struct segment_header {
  uint32_t magic;
  uint32_t version;
  uint64_t file_bytes;
  uint64_t ids_at;
  uint64_t record_at;
  uint64_t record_bytes;
  uint64_t output_at;
  uint64_t input_at;
  // Leader.
  uint64_t start_time;
  uint64_t tree_tag;
  uint64_t pipes[3];
  int32_t pid;
  int32_t pts;
  uint32_t is_terminal;
  uint32_t has_stdin;
  uint64_t max_output_bytes;  // output limit; output beyond it is dropped
  // Output.
  uint64_t out_head;
  uint64_t out_tail;
  uint64_t evicted_seq;  // sequence number of the last evicted entry, and output bytes up to its end
  uint64_t evicted_bytes;
  uint32_t read_in_progress;
  // Exit status, written by the supervisor. `ended` is set last.
  uint32_t ended;
  int32_t exit_code;
  int32_t exit_signal;
  // Sequence number and status of the exit event. It counts as emitted once the output has reached that number.
  uint64_t exit_seq;
  uint64_t close_seq;
  uint32_t exit_status_bytes;
  char exit_status[SEGMENT_STATUS_BYTES];
  // Input.
  uint64_t in_head;
  uint64_t in_tail;
  uint32_t in_closing;                    // set by the server: no more input follows
  uint32_t in_ended;                      // set by the supervisor: stdin is closed
  uint32_t server_waits_for_input_space;  // set by the server: wake it after input is written
  uint32_t has_partial_line;              // the last byte for a terminal did not end a line
  // Current write, which may be larger than the ring. It is complete once `in_head` has passed its end.
  struct write_id_hash write_id;
  uint64_t write_from;
  uint64_t write_bytes;
  // Incomplete write of an earlier server, and the number of its bytes in the ring. A resend continues there.
  struct write_id_hash partial_write_id;
  uint64_t partial_write_bytes;
  uint64_t ids;  // number of ids ever stored; the table holds the newest
  // The session has ended or released the process, so the server owns it.
  uint32_t is_released;
  uint32_t attachments;  // number of clients that have attached to its session
  uint32_t rows;
  uint32_t cols;
};

#define SEGMENT_LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define SEGMENT_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

#endif
