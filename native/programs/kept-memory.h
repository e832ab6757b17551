// The memory of one kept process, shared by its keeper and the current server: its retained output, its input that is
// not written yet, and how it ended. It outlives every server. C and C++ both read it.
//
//   header | ids of writes | record (JSON, of the server) | output ring | input ring
//
// Positions in a ring only ever grow; their place is the remainder by the ring's size. Both rings are mapped twice in a
// row by the server, so that nothing that is read or written there has to be split.
//
// Output: the server writes. An entry counts from the moment `out_head` passes it (the commit). `intent` is set before
// the process's output is read, and cleared after the commit: a server that dies in between may have read bytes that
// are lost, which the next server reports as a gap.
// Input: the server puts bytes in and moves `in_head`; the keeper alone writes them to the process and moves `in_tail`.
#ifndef PROCWIRE_KEPT_MEMORY_H
#define PROCWIRE_KEPT_MEMORY_H

#include <stdint.h>

#define KEPT_MAGIC 0x6b707770u
// Raised whenever the layout or the record changes: a process that cannot be read is ended and reported, never guessed.
#define KEPT_VERSION 1u

// Holds twice the retention of a kept process (src/exec/kept-process.ts) with the heads of its entries, and one read.
#define KEPT_OUTPUT_BYTES (3u * 1024u * 1024u)
// The most one read takes, so that an entry is one chunk of the log: a quarter of that retention.
#define KEPT_READ_BYTES (256u * 1024u)
#define KEPT_INPUT_BYTES (256u * 1024u)
// As many as src/exec/input-limits.ts has.
#define KEPT_WRITE_IDS 4096u
#define KEPT_MOST_RECORD_BYTES (4u * 1024u * 1024u)
#define KEPT_PAGE 4096u
// A status is a few words of JSON.
#define KEPT_STATUS_BYTES 512u

enum kept_stream { KEPT_STDOUT = 0, KEPT_STDERR = 1, KEPT_TERMINAL = 2, KEPT_EXIT = 3, KEPT_CLOSE = 4, KEPT_HOLE = 5 };

struct kept_entry {
  uint64_t seq;
  uint64_t offset;  // bytes of output before it
  uint32_t length;
  uint32_t stream;  // enum kept_stream
};

struct kept_id {
  uint64_t hash[2];
};

struct kept_header {
  uint32_t magic;
  uint32_t version;
  uint64_t file_bytes;
  uint64_t ids_at;
  uint64_t record_at;
  uint64_t record_bytes;
  uint64_t output_at;
  uint64_t input_at;
  // The leader.
  uint64_t start_time;
  uint64_t mark;
  uint64_t pipes[3];
  int32_t pid;
  int32_t pts;
  uint32_t is_terminal;
  uint32_t has_stdin;
  uint64_t most_output_bytes;  // a limit; output beyond it is dropped
  // Output.
  uint64_t out_head;
  uint64_t out_tail;
  uint64_t gone_seq;  // of the last entry that was evicted, and the bytes up to its end
  uint64_t gone_bytes;
  uint32_t intent;
  // How it ended, by the keeper; `ended` is set last.
  uint32_t ended;
  int32_t exit_code;
  int32_t exit_signal;
  // The status and seq of its exit event; it counts as emitted once the output has reached that seq.
  uint64_t exit_seq;
  uint64_t close_seq;
  uint32_t exit_status_bytes;
  char exit_status[KEPT_STATUS_BYTES];
  // Input.
  uint64_t in_head;
  uint64_t in_tail;
  uint32_t in_closing;  // the server: no more comes
  uint32_t in_ended;    // the keeper: nobody reads any more, or its end is closed
  uint32_t in_awaited;  // the server waits for room
  uint32_t line_open;   // the last byte for a terminal did not end its line
  // The write under way, which may be larger than the ring: it is done once `in_head` has passed its end.
  struct kept_id write_id;
  uint64_t write_from;
  uint64_t write_bytes;
  // A write that an earlier server began, and how many of its bytes are in: a resend continues there.
  struct kept_id half_id;
  uint64_t half_done;
  uint64_t ids;  // how many were ever remembered; the newest stand in the table
  // Its session has ended or forgotten it: the server holds it.
  uint32_t left_session;
  uint32_t attachments;  // how many clients have had its session
  uint32_t rows;
  uint32_t cols;
};

#define KEPT_LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define KEPT_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

#endif
