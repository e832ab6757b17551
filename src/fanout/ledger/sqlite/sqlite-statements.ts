/** Every statement of the SQLite ledger. Parameters have names (`:token`), so their order does not matter. */

import { ADD_USAGE_SQL, COUNT_WITH_USAGE_SQL, SUM_USAGE_SQL } from "../usage-columns.ts";

export const FIND_JOB_ID = "SELECT id FROM agent_jobs";

export const READ_JOB = "SELECT * FROM agent_jobs";

export const INSERT_JOB = `
  INSERT INTO agent_jobs (id, key, status, task_json, settings_json, headers_json, total_rows, is_reading, input_path,
    output_path, created_at, updated_at)
  VALUES (:id, :key, 'pending', :task, :settings, :headers, :totalRows, :isReading, :inputPath, :outputPath, :createdAt,
    :createdAt)`;

export const INSERT_ITEM = `
  INSERT INTO agent_job_items (row_index, stored_id, source_id, row_json, columns_id, question)
  VALUES (:rowIndex, :storedId, :sourceId, :row, :columnsId, unhex(:question)) ON CONFLICT (row_index) DO NOTHING`;

// --- packed rows

export const INSERT_BLOCK = `
  INSERT INTO agent_job_blocks (first_row, row_count, columns_id, ids_json, questions, cells)
  VALUES (:firstRow, :rowCount, :columnsId, :ids, :questions, :cells)`;

export const NEXT_BLOCK = `
  SELECT first_row, row_count FROM agent_job_blocks WHERE first_row > :after AND first_row < :rowLimit
  ORDER BY first_row LIMIT 1`;

const BLOCK_COLUMNS = "first_row, columns_id, ids_json, lower(hex(questions)) AS questions, cells";

export const READ_BLOCK = `SELECT ${BLOCK_COLUMNS} FROM agent_job_blocks WHERE first_row = :firstRow`;

export const READ_BLOCK_AROUND = `
  SELECT ${BLOCK_COLUMNS} FROM agent_job_blocks
  WHERE first_row = (SELECT MAX(first_row) FROM agent_job_blocks WHERE first_row <= :rowIndex)
    AND first_row + row_count > :rowIndex`;

export const DELETE_BLOCK = "DELETE FROM agent_job_blocks WHERE first_row = :firstRow";

export const LAST_ROW = `
  SELECT MAX(COALESCE((SELECT MAX(row_index) FROM agent_job_items), -1), COALESCE((
    SELECT first_row + row_count - 1 FROM agent_job_blocks ORDER BY first_row DESC LIMIT 1), -1)) AS last`;

/** Blocks with rows for single calls. */
const SINGLE_BLOCKS = "agent_job_blocks WHERE first_row < :rowLimit AND :onlyItems IS NULL AND NOT :batch";

// --- unpacked rows

export const READ_COLUMNS = "SELECT names_json FROM agent_job_columns WHERE id = :id";

export const FIND_COLUMNS = "SELECT id FROM agent_job_columns WHERE names_json = :names";

/** Limits the number of lists, because rows with always different columns would store more names than they save. */
export const INSERT_COLUMNS = `
  INSERT INTO agent_job_columns (names_json) SELECT :names WHERE (SELECT COUNT(*) FROM agent_job_columns) < 100
  RETURNING id`;

/** The row of an item id: the row that stores the id, otherwise the row number in the id. */
const ROW_OF_ITEM = `(
    SELECT row_index FROM agent_job_items WHERE stored_id = :itemId
    UNION ALL
    SELECT row_index FROM agent_job_items WHERE row_index = CAST(substr(:itemId, 5) AS INTEGER) - 1 AND item_id = :itemId
    LIMIT 1)`;

export const COUNT_READ_ROWS = "UPDATE agent_jobs SET total_rows = MAX(total_rows, :totalRows)";

export const FINISH_READING = `
  UPDATE agent_jobs SET headers_json = :headers, total_rows = :totalRows, is_reading = 0`;

export const COUNT_ITEMS = `
  SELECT status, COUNT(*) AS n, ${COUNT_WITH_USAGE_SQL}, ${SUM_USAGE_SQL}
  FROM agent_job_items WHERE row_index < :rowLimit GROUP BY status
  UNION ALL
  SELECT 'pending', SUM(MIN(row_count, :rowLimit - first_row)), 0, 0, 0, 0, 0, 0, 0, 0
  FROM agent_job_blocks WHERE first_row < :rowLimit`;

/** Makes the running rows of a dead process pending; their attempts do not count. */
export const RECOVER_ITEMS = `
  UPDATE agent_job_items SET status = 'pending', attempt_token = NULL, due_at = 0,
    attempt_count = MAX(0, attempt_count - 1)
  WHERE status = 'running'`;

/** Longer than any backoff. If a row waits longer, the clock was set back after the row was delayed. */
const MAX_WAIT_MS = 10 * 60_000;

/** Rows that the settings select, in any state. */
const IS_SELECTED = `row_index < :rowLimit
      AND (:onlyItems IS NULL OR item_id IN (SELECT value FROM json_each(:onlyItems)))`;

/** Rows without an earlier attempt. Batches take only these. */
const IS_NEW = "attempt_count = 0 AND error_class IS NULL";

/** Rows for single calls: not in a batch group and not meant for one. */
const IS_FOR_SINGLE_CALLS = `(batch_group = '' OR (batch_group IS NULL AND NOT (:batch AND ${IS_NEW})))`;

export const LEASE_ITEM = `
  UPDATE agent_job_items
  SET status = 'running', attempt_count = attempt_count + 1, attempt_token = :token, started_at = :now
  WHERE row_index = (
    SELECT row_index FROM agent_job_items
    WHERE status = 'pending' AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS}
      AND row_index < COALESCE((SELECT MIN(first_row) FROM ${SINGLE_BLOCKS}), :rowLimit)
      AND (due_at <= :now OR due_at > :now + ${MAX_WAIT_MS})
      AND (SELECT status FROM agent_jobs) = 'running'
    ORDER BY row_index LIMIT 1)
  RETURNING *`;

export const NEXT_DUE = `
  SELECT MIN(due) AS due FROM (
    SELECT MIN(due_at) AS due FROM agent_job_items WHERE status = 'pending' AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS}
    UNION ALL
    SELECT 0 FROM (SELECT 1 FROM ${SINGLE_BLOCKS} LIMIT 1))`;

export const FIND_OPEN_ITEM = `
  SELECT 1 FROM agent_job_items WHERE status IN ('pending', 'running') AND ${IS_SELECTED}
  UNION ALL
  SELECT 1 FROM agent_job_blocks WHERE first_row < :rowLimit AND :onlyItems IS NULL
  LIMIT 1`;

/** Guard of every statement that ends an attempt: only the token of the newest attempt matches. */
const IS_LEASED = "row_index = :rowIndex AND status = 'running' AND attempt_token = :token";

export const COMPLETE_ITEM = `
  UPDATE agent_job_items SET status = 'completed', result_json = :result, reported_at = :now, completed_at = :now,
    error_class = NULL, last_error = NULL, ${ADD_USAGE_SQL}
  WHERE ${IS_LEASED} RETURNING *`;

export const FAIL_ITEM = `
  UPDATE agent_job_items SET status = 'failed', error_class = :errorClass, last_error = :message,
    completed_at = :now, ${ADD_USAGE_SQL}
  WHERE ${IS_LEASED} RETURNING *`;

export const RETRY_ITEM = `
  UPDATE agent_job_items SET status = 'pending', error_class = :errorClass, last_error = :message, due_at = :dueAt,
    ${ADD_USAGE_SQL}
  WHERE ${IS_LEASED}`;

export const RELEASE_ITEM = `
  UPDATE agent_job_items SET status = 'pending', due_at = 0, attempt_count = attempt_count - 1, ${ADD_USAGE_SQL}
  WHERE ${IS_LEASED}`;

/** Stores an attempt after the guarded statement has changed its row. */
export const INSERT_ATTEMPT = `
  INSERT INTO agent_job_attempts (row_index, outcome, error_class, message, input_tokens, cached_input_tokens,
    output_tokens, reasoning_output_tokens, batch_input_tokens, batch_cached_input_tokens, batch_output_tokens,
    started_at, ended_at, transcript_json)
  VALUES (:rowIndex, :outcome, :errorClass, :message, :inputTokens, :cachedInputTokens, :outputTokens,
    :reasoningOutputTokens, :batchInputTokens, :batchCachedInputTokens, :batchOutputTokens, :startedAt, :now, :transcript)`;

export const READ_ATTEMPTS = `
  SELECT * FROM agent_job_attempts WHERE row_index = ${ROW_OF_ITEM} ORDER BY id`;

/** Excludes rows that failed before and are retried, because the user wants a new answer. */
const UNATTEMPTED =
  "status = 'pending' AND attempt_count = 0 AND error_class IS NULL AND question IS NOT NULL AND COALESCE(batch_group, '') = ''";

export const READ_UNATTEMPTED = `
  SELECT row_index, lower(hex(question)) AS question FROM agent_job_items
  WHERE ${UNATTEMPTED} AND row_index > :after AND row_index < :rowLimit ORDER BY row_index LIMIT :pageRows`;

export const COMPLETE_WITH_REUSED = `
  UPDATE agent_job_items SET status = 'completed', result_json = :result, reported_at = :now, completed_at = :now
  WHERE row_index = :rowIndex AND ${UNATTEMPTED}`;

/** Names the index. Otherwise SQLite would scan all completed rows for each page of questions. */
export const FIND_ANSWERS = `
  SELECT lower(hex(question)) AS question, result_json, item_id, (SELECT id FROM agent_jobs) AS job_id
  FROM agent_job_items INDEXED BY agent_job_items_by_question
  WHERE question IN (SELECT unhex(value) FROM json_each(:questions)) AND status = 'completed'
    AND question IS NOT NULL AND result_json IS NOT NULL`;

export const SET_STATUS = `
  UPDATE agent_jobs SET status = :to, stop_cause = :stopCause, last_error = :error, updated_at = :now,
    completed_at = :endedAt, started_at = COALESCE(started_at, :startedAt)
  WHERE status IN (SELECT value FROM json_each(:from))`;

export const SET_OPTIONS = `
  UPDATE agent_jobs SET settings_json = :settings, output_path = :outputPath, updated_at = :now`;

/** Tests whether the file can be written. */
export const PROBE_WRITE = "UPDATE agent_jobs SET updated_at = updated_at";

export const RETRY_FAILED_ITEMS = `
  UPDATE agent_job_items SET status = 'pending', attempt_count = 0, due_at = 0, completed_at = NULL,
    batch_group = CASE WHEN batch_group IS NULL THEN NULL ELSE '' END
  WHERE status = 'failed'
    AND (:errorClasses IS NULL OR error_class IN (SELECT value FROM json_each(:errorClasses)))
    AND (:itemIds IS NULL OR item_id IN (SELECT value FROM json_each(:itemIds)))`;

/** One page of rows, in table order. */
export const READ_ITEMS = `
  SELECT * FROM agent_job_items WHERE row_index > :after AND row_index < :rowLimit
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  ORDER BY row_index LIMIT :pageRows`;

export const READ_ITEM = `SELECT * FROM agent_job_items WHERE row_index = ${ROW_OF_ITEM}`;

export const READ_FINISHED = `
  SELECT * FROM agent_job_items
  WHERE completed_at >= :since AND (completed_at > :since OR row_index > :after) AND row_index < :rowLimit
  ORDER BY completed_at, row_index LIMIT :pageRows`;

// --- batch groups

export const READ_BATCH_GROUPS = "SELECT * FROM agent_job_batches ORDER BY created_at, id";

export const READ_NEW_ROWS = `
  SELECT * FROM agent_job_items
  WHERE status = 'pending' AND batch_group IS NULL AND ${IS_NEW}
    AND row_index > :after AND ${IS_SELECTED}
  ORDER BY row_index LIMIT :pageRows`;

export const ASSIGN_ROWS = `
  UPDATE agent_job_items SET batch_group = :groupId
  WHERE row_index IN (SELECT value FROM json_each(:rowIndexes)) AND status = 'pending' AND batch_group IS NULL`;

export const INSERT_GROUP = `
  INSERT INTO agent_job_batches (id, row_count, created_at) VALUES (:groupId, :rows, :now)`;

export const MOVE_TO_SINGLE_CALLS = `
  UPDATE agent_job_items SET batch_group = '' WHERE row_index = :rowIndex AND batch_group IS NULL`;

const IN_GROUP = "batch_group = :groupId AND status = 'pending'";

export const READ_GROUP_ROWS = `
  SELECT * FROM agent_job_items WHERE ${IN_GROUP} AND row_index > :after ORDER BY row_index LIMIT :pageRows`;

export const READ_GROUP_ROW = `SELECT * FROM agent_job_items WHERE ${IN_GROUP} AND row_index = :rowIndex`;

/** Null parameters leave their columns unchanged. */
export const UPDATE_GROUP = `
  UPDATE agent_job_batches SET state = COALESCE(:state, state), answered = COALESCE(:answered, answered),
    file_id = CASE WHEN :hasFileId THEN :fileId ELSE file_id END,
    batch_id = CASE WHEN :hasBatchId THEN :batchId ELSE batch_id END, tries = COALESCE(:tries, tries),
    is_assumed = COALESCE(:isAssumed, is_assumed),
    cancel_requested = COALESCE(:cancelRequested, cancel_requested), last_error = COALESCE(:error, last_error)
  WHERE id = :groupId`;

export const COMPLETE_GROUP_ROW = `
  UPDATE agent_job_items SET status = 'completed', result_json = :result, reported_at = :now, completed_at = :now,
    attempt_count = attempt_count + 1, error_class = NULL, last_error = NULL, batch_group = '', ${ADD_USAGE_SQL}
  WHERE ${IN_GROUP} AND row_index = :rowIndex RETURNING *`;

export const REQUEUE_ROW = `
  UPDATE agent_job_items SET batch_group = '', attempt_count = attempt_count + 1, error_class = :errorClass,
    last_error = :message, ${ADD_USAGE_SQL}
  WHERE ${IN_GROUP} AND row_index = :rowIndex`;

export const RELEASE_GROUP_ROW = `
  UPDATE agent_job_items SET batch_group = '', ${ADD_USAGE_SQL} WHERE ${IN_GROUP} AND row_index = :rowIndex`;

export const RELEASE_GROUP = `UPDATE agent_job_items SET batch_group = '' WHERE ${IN_GROUP}`;

// --- views

const MATCHES_FILTER = `row_index > :after AND row_index < :rowLimit
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
    AND (:errorClasses IS NULL OR (status = 'failed' AND error_class IN (SELECT value FROM json_each(:errorClasses))))
    AND (:text IS NULL OR item_id LIKE :text ESCAPE '\\' OR row_json LIKE :text ESCAPE '\\'
      OR result_json LIKE :text ESCAPE '\\' OR last_error LIKE :text ESCAPE '\\')`;

export const COUNT_PAGE = `SELECT COUNT(*) AS n FROM agent_job_items WHERE ${MATCHES_FILTER}`;

export const READ_PAGE = `
  SELECT * FROM agent_job_items WHERE ${MATCHES_FILTER} ORDER BY row_index LIMIT :limit OFFSET :offset`;

export const COUNT_FAILURES = `
  SELECT error_class, COUNT(*) AS n, ${SUM_USAGE_SQL}
  FROM agent_job_items WHERE status = 'failed' AND error_class IS NOT NULL AND row_index < :rowLimit
  GROUP BY error_class ORDER BY n DESC, error_class`;

/** JavaScript binds numbers as REAL, which would make the division fractional. */
const SPAN = "CAST(:span AS INTEGER)";

export const COUNT_FINISHED = `
  SELECT completed_at / ${SPAN} * ${SPAN} AS at, SUM(status = 'completed') AS completed, SUM(status = 'failed') AS failed
  FROM agent_job_items WHERE completed_at >= :since AND status IN ('completed', 'failed') AND row_index < :rowLimit
  GROUP BY 1 ORDER BY 1`;

export const COUNT_WAITS = `
  SELECT
    (SELECT COUNT(*) FROM agent_job_items WHERE status = 'pending' AND due_at > :now AND row_index < :rowLimit) AS waiting,
    (SELECT COUNT(*) FROM agent_job_attempts WHERE error_class = 'rate_limit') AS refused`;
