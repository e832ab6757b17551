/** The limits of every process's input, on the straight way and the ordered one. The only place that has them. */

/** How much input may be queued for a process that does not read before the writer has to wait. */
export const MAX_QUEUED_INPUT_BYTES = 1024 * 1024;

/** Write ids remembered per process, as many as the reference server keeps: a write that is sent again is not done again. */
export const REMEMBERED_WRITE_IDS = 4096;

/** The most characters of remembered ids: long ids are forgotten earlier. `native/process/write-ids.h` has the same number. */
export const REMEMBERED_WRITE_ID_CHARS = 256 * 1024;
