/** Input limits of every process, for direct and ordered input. Defined only here. */

/** Maximum queued input bytes of a process that does not read; above it, a write waits. */
export const MAX_QUEUED_INPUT_BYTES = 1024 * 1024;

/**
 * Write ids remembered per process, so that a resent write is not repeated. The reference server has the same limit.
 */
export const MAX_WRITE_IDS = 4096;

/** Maximum characters of remembered write ids: long ids are forgotten earlier. */
export const MAX_WRITE_ID_CHARS = 256 * 1024;
