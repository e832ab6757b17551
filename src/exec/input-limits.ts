/** What the input of every process keeps to, by whichever way it comes: said here, and nowhere else. */

/** How much may wait for a process that does not read before whoever writes has to wait too. */
export const MAX_QUEUED_INPUT_BYTES = 1024 * 1024;

/** Write ids remembered per process, as many as the reference server keeps: a write that is sent again is not done again. */
export const REMEMBERED_WRITE_IDS = 4096;

/** And as many characters of them: long ids are forgotten earlier. `native/process/write-ids.h` has the same number. */
export const REMEMBERED_WRITE_ID_CHARS = 256 * 1024;
