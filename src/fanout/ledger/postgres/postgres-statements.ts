/** Every statement of the Postgres ledger. */

import type { AttemptOutcome } from "../../job.ts";
import { ADD_USAGE_SQL, COUNT_WITH_USAGE_SQL, SUM_USAGE_SQL } from "../usage-columns.ts";
import { ATTEMPTS, BATCHES, ITEMS, JOBS } from "./postgres-migrations.ts";
import { type Statement, statement } from "./statement.ts";

/** Row limit of the job. Each statement reads the limit, because another host may have changed it. */
const ROW_LIMIT = `COALESCE((SELECT (settings_json ->> 'rowLimit')::bigint FROM ${JOBS} WHERE id = :jobId), 9007199254740991)`;

/** Condition on `item`: the settings select the row. */
const IS_SELECTED = `item.row_index < ${ROW_LIMIT} AND COALESCE((
    SELECT jsonb_exists(settings_json -> 'onlyItems', item.item_id) FROM ${JOBS} WHERE id = :jobId), true)`;

/** Condition on `item`: the row has no earlier attempt. Batches take only such rows. */
const IS_NEW = "item.attempt_count = 0 AND item.error_class IS NULL";

/** Condition on `item`: the row is for single calls, not in a batch group and not meant for one. */
const IS_FOR_SINGLE_CALLS = `(item.batch_group = '' OR (item.batch_group IS NULL AND NOT (${IS_NEW} AND COALESCE((
    SELECT (settings_json ->> 'batch')::boolean FROM ${JOBS} WHERE id = :jobId), false))))`;

export const FIND_JOB = statement(`SELECT * FROM ${JOBS} WHERE key = :key AND is_current`);

export const FIND_JOB_IDS = statement(`SELECT id FROM ${JOBS} WHERE starts_with(id, :prefix) ORDER BY id LIMIT 3`);

/** Locks until the end of the transaction. */
export const LOCK_KEY = statement("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))");

/** Deletes a job with its rows and attempts (cascade). */
export const DELETE_JOB = statement(`DELETE FROM ${JOBS} WHERE id = :jobId AND status <> 'running'`);

export const LIST_JOBS = statement(`SELECT * FROM ${JOBS} ORDER BY created_at DESC, id`);

export const READ_JOB = statement(`SELECT * FROM ${JOBS} WHERE id = :jobId`);

/** Releases the key for a new job. */
export const RETIRE_KEY = statement(`UPDATE ${JOBS} SET is_current = false WHERE key = :key`);

export const INSERT_JOB = statement(`
  INSERT INTO ${JOBS} (id, key, is_current, status, task_json, settings_json, headers_json, total_rows, input_path,
    output_path, created_at, updated_at)
  VALUES (:id, :key, true, 'pending', :task, :settings, '[]', 0, :inputPath, :outputPath, :createdAt, :createdAt)`);

export const INSERT_ITEMS = statement(`
  INSERT INTO ${ITEMS} (job_id, row_index, item_id, source_id, row_json, question)
  SELECT :jobId, *
  FROM unnest(:rowIndexes::bigint[], :itemIds::text[], :sourceIds::text[], :rows::text[], :questions::text[])
  ON CONFLICT (job_id, row_index) DO NOTHING`);

/** Columns and row count are known only after the last row. */
export const FINISH_JOB_INSERT = statement(`
  UPDATE ${JOBS} SET headers_json = :headers, total_rows = :totalRows, is_reading = :isReading
  WHERE id = :jobId RETURNING *`);

export const COUNT_READ_ROWS = statement(`
  UPDATE ${JOBS} SET total_rows = GREATEST(total_rows, :totalRows) WHERE id = :jobId`);

export const COUNT_ITEMS = statement(`
  SELECT status, COUNT(*) AS n, ${COUNT_WITH_USAGE_SQL}, ${SUM_USAGE_SQL}
  FROM ${ITEMS} WHERE job_id = :jobId AND row_index < ${ROW_LIMIT} GROUP BY status`);

export const NEXT_DUE = statement(`
  SELECT MIN(due_at) AS due FROM ${ITEMS} AS item
  WHERE job_id = :jobId AND status = 'pending' AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS}`);

export const FIND_OPEN_ITEM = statement(`
  SELECT 1 FROM ${ITEMS} AS item
  WHERE job_id = :jobId AND status IN ('pending', 'running') AND ${IS_SELECTED} LIMIT 1`);

/** One page of rows, in table order. */
export const READ_ITEMS = statement(`
  SELECT * FROM ${ITEMS} WHERE job_id = :jobId AND row_index > :after AND row_index < ${ROW_LIMIT}
    AND (:statuses::text[] IS NULL OR status = ANY (:statuses))
  ORDER BY row_index LIMIT :pageRows`);

export const READ_ITEM = statement(`SELECT * FROM ${ITEMS} WHERE job_id = :jobId AND item_id = :itemId`);

export const READ_FINISHED = statement(`
  SELECT * FROM ${ITEMS}
  WHERE job_id = :jobId AND completed_at >= :since AND (completed_at > :since OR row_index > :after)
    AND row_index < ${ROW_LIMIT}
  ORDER BY completed_at, row_index LIMIT :pageRows`);

/** One page of unfinished rows, for the queue. */
export const READ_OPEN_ITEMS = statement(`
  SELECT item_id, row_index, due_at FROM ${ITEMS} AS item
  WHERE job_id = :jobId AND row_index > :after AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS}
    AND status IN ('pending', 'running')
  ORDER BY row_index LIMIT :pageRows`);

/** Selects the rows that still need single calls. */
export const FILTER_OPEN_ITEMS = statement(`
  SELECT item_id FROM ${ITEMS} AS item
  WHERE job_id = :jobId AND item_id = ANY (:itemIds) AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS}
    AND status IN ('pending', 'running')`);

/** Leases rows. A delivered row that is still running was left by a dead worker; that attempt does not count. */
export const LEASE_ITEMS = statement(`
  UPDATE ${ITEMS} AS item
  SET status = 'running', attempt_token = given.token, started_at = :now,
    attempt_count = item.attempt_count + CASE WHEN item.status = 'pending' THEN 1 ELSE 0 END
  FROM unnest(:itemIds::text[], :tokens::text[]) AS given (item_id, token)
  WHERE item.job_id = :jobId AND item.item_id = given.item_id AND item.status IN ('pending', 'running')
    AND ${IS_SELECTED} AND ${IS_FOR_SINGLE_CALLS} AND (SELECT status FROM ${JOBS} WHERE id = :jobId) = 'running'
  RETURNING item.*`);

/** Rows in flight in any process, except those about to be leased again. */
export const COUNT_RUNNING = statement(`
  SELECT COUNT(*) AS n FROM ${ITEMS}
  WHERE job_id = :jobId AND status = 'running' AND NOT (item_id = ANY (:exceptItemIds::text[]))`);

/** Cost of an attempt in millionths of a dollar. Batched tokens cost half. */
const ATTEMPT_COST = `(input_tokens - cached_input_tokens) * :input::float8 + cached_input_tokens * :cachedInput::float8
    + output_tokens * :output::float8 - 0.5 * ((batch_input_tokens - batch_cached_input_tokens) * :input::float8
    + batch_cached_input_tokens * :cachedInput::float8 + batch_output_tokens * :output::float8)`;

export const SUM_ATTEMPTS = statement(`
  SELECT ${SUM_USAGE_SQL}, COUNT(*) FILTER (WHERE input_tokens + output_tokens > 0) AS ended, MAX(id) AS newest_id,
    MAX(input_tokens + output_tokens) AS dearest_tokens, MAX(${ATTEMPT_COST}) / 1000000 AS dearest_usd
  FROM ${ATTEMPTS} WHERE job_id = :jobId AND id > :afterId AND id <= :upToId`);

/** Guard of every statement that ends an attempt: only the token of the newest attempt matches. */
const IS_LEASED = "job_id = :jobId AND row_index = :rowIndex AND status = 'running' AND attempt_token = :token";

/** Ends an attempt and stores its transcript in one statement. */
function endAttempt(change: string, outcome: AttemptOutcome, guard = IS_LEASED): Statement {
  const failure = change.includes(":errorClass") ? ":errorClass::text, :message::text" : "NULL, NULL";
  // A released attempt without transcript or usage is not stored.
  const isStored =
    outcome === "released"
      ? "(:transcript::text IS NOT NULL OR :inputTokens::bigint + :outputTokens::bigint > 0)"
      : "true";
  return statement(`
  WITH ended AS (${change} WHERE ${guard} RETURNING *),
  kept AS (
    INSERT INTO ${ATTEMPTS} (job_id, row_index, outcome, error_class, message, input_tokens, cached_input_tokens,
      output_tokens, reasoning_output_tokens, batch_input_tokens, batch_cached_input_tokens, batch_output_tokens,
      started_at, ended_at, transcript_json)
    SELECT job_id, row_index, '${outcome}', ${failure}, :inputTokens::bigint, :cachedInputTokens::bigint,
      :outputTokens::bigint, :reasoningOutputTokens::bigint, :batchInputTokens::bigint,
      :batchCachedInputTokens::bigint, :batchOutputTokens::bigint, started_at, :now::bigint, COALESCE(:transcript::text, '[]')
    FROM ended WHERE ${isStored})
  SELECT * FROM ended`);
}

export const COMPLETE_ITEM = endAttempt(
  `UPDATE ${ITEMS} SET status = 'completed', result_json = :result, reported_at = :now, completed_at = :now,
    error_class = NULL, last_error = NULL, finished_token = :token, ${ADD_USAGE_SQL}`,
  "reported",
);

export const FAIL_ITEM = endAttempt(
  `UPDATE ${ITEMS} SET status = 'failed', error_class = :errorClass, last_error = :message, completed_at = :now,
    finished_token = :token, ${ADD_USAGE_SQL}`,
  "failed",
);

/** The row, if this attempt finished it. */
export const READ_FINISHED_BY = statement(`
  SELECT * FROM ${ITEMS} WHERE job_id = :jobId AND row_index = :rowIndex AND finished_token = :token`);

export const RETRY_ITEM = endAttempt(
  `UPDATE ${ITEMS} SET status = 'pending', error_class = :errorClass, last_error = :message, due_at = :dueAt, ${ADD_USAGE_SQL}`,
  "retried",
);

export const RELEASE_ITEM = endAttempt(
  `UPDATE ${ITEMS} SET status = 'pending', due_at = 0, attempt_count = attempt_count - 1, ${ADD_USAGE_SQL}`,
  "released",
);

export const READ_ATTEMPTS = statement(`
  SELECT attempt.* FROM ${ATTEMPTS} AS attempt JOIN ${ITEMS} AS item USING (job_id, row_index)
  WHERE item.job_id = :jobId AND item.item_id = :itemId ORDER BY attempt.id`);

/** Excludes rows that failed before and are retried, because the user wants a new answer. */
const UNATTEMPTED =
  "status = 'pending' AND attempt_count = 0 AND error_class IS NULL AND question IS NOT NULL AND COALESCE(batch_group, '') = ''";

export const READ_UNATTEMPTED = statement(`
  SELECT row_index, question FROM ${ITEMS}
  WHERE job_id = :jobId AND ${UNATTEMPTED} AND row_index > :after AND row_index < ${ROW_LIMIT}
  ORDER BY row_index LIMIT :pageRows`);

export const COMPLETE_WITH_REUSED = statement(`
  WITH adopted AS (
    UPDATE ${ITEMS} AS item
    SET status = 'completed', result_json = given.result, reported_at = :now, completed_at = :now
    FROM unnest(:rowIndexes::bigint[], :results::text[], :messages::text[]) AS given (row_number, result, message)
    WHERE item.job_id = :jobId AND item.row_index = given.row_number AND ${UNATTEMPTED}
    RETURNING item.job_id, item.row_index, given.message)
  INSERT INTO ${ATTEMPTS} (job_id, row_index, outcome, message, input_tokens, cached_input_tokens, output_tokens,
    reasoning_output_tokens, ended_at, transcript_json)
  SELECT job_id, row_index, 'reused', message, 0, 0, 0, 0, :now::bigint, '[]' FROM adopted`);

export const FIND_ANSWERS = statement(`
  SELECT item.question, item.result_json, item.item_id, item.job_id FROM ${ITEMS} AS item JOIN ${JOBS} AS job ON job.id = item.job_id
  WHERE item.question = ANY (:questions::text[]) AND item.status = 'completed' AND item.job_id <> :jobId
    AND item.result_json IS NOT NULL
  ORDER BY job.created_at DESC`);

/** Fails a row whose workers died too often. */
export const FAIL_DEAD_ITEM = statement(`
  UPDATE ${ITEMS} SET status = 'failed', error_class = 'spawn', last_error = :message, completed_at = :now
  WHERE job_id = :jobId AND item_id = :itemId AND status IN ('pending', 'running')`);

export const RETRY_FAILED_ITEMS = statement(`
  UPDATE ${ITEMS} SET status = 'pending', attempt_count = 0, due_at = 0, completed_at = NULL,
    batch_group = CASE WHEN batch_group IS NULL THEN NULL ELSE '' END
  WHERE job_id = :jobId AND status = 'failed'
    AND (:errorClasses::text[] IS NULL OR error_class = ANY (:errorClasses))
    AND (:itemIds::text[] IS NULL OR item_id = ANY (:itemIds))`);

export const SET_STATUS = statement(`
  UPDATE ${JOBS} SET status = :to, stop_cause = :stopCause, last_error = :error, updated_at = :now,
    completed_at = :endedAt, started_at = COALESCE(started_at, :startedAt)
  WHERE id = :jobId AND status = ANY (:from)`);

export const SET_OPTIONS = statement(`
  UPDATE ${JOBS} SET settings_json = :settings, output_path = :outputPath, updated_at = :now WHERE id = :jobId`);

// --- batch groups

/** The lock belongs to the connection, so it is released when the process dies. */
export const TRY_ACQUIRE_LEADERSHIP = statement(
  "SELECT pg_try_advisory_lock(hashtextextended('batches of ' || :jobId, 0)) AS leads",
);

export const READ_BATCH_GROUPS = statement(`SELECT * FROM ${BATCHES} WHERE job_id = :jobId ORDER BY created_at, id`);

export const READ_NEW_ROWS = statement(`
  SELECT * FROM ${ITEMS} AS item
  WHERE job_id = :jobId AND status = 'pending' AND batch_group IS NULL AND ${IS_NEW}
    AND row_index > :after AND ${IS_SELECTED}
  ORDER BY row_index LIMIT :pageRows`);

/** Creates a batch group and assigns its rows in one statement. Creates none if no row is free. */
export const ASSIGN_ROWS = statement(`
  WITH taken AS (
    UPDATE ${ITEMS} SET batch_group = :groupId::text
    WHERE job_id = :jobId AND row_index = ANY (:rowIndexes::bigint[]) AND status = 'pending' AND batch_group IS NULL
    RETURNING 1)
  INSERT INTO ${BATCHES} (job_id, id, row_count, created_at)
  SELECT :jobId, :groupId::text, COUNT(*), :now::bigint FROM taken HAVING COUNT(*) > 0
  RETURNING row_count`);

export const MOVE_TO_SINGLE_CALLS = statement(`
  UPDATE ${ITEMS} SET batch_group = '' WHERE job_id = :jobId AND row_index = :rowIndex AND batch_group IS NULL`);

const IN_GROUP = "job_id = :jobId AND batch_group = :groupId AND status = 'pending'";

export const READ_BATCH_GROUP = statement(`SELECT row_count FROM ${BATCHES} WHERE job_id = :jobId AND id = :groupId`);

export const READ_GROUP_ROWS = statement(`
  SELECT * FROM ${ITEMS} WHERE ${IN_GROUP} AND row_index > :after ORDER BY row_index LIMIT :pageRows`);

export const READ_GROUP_ROW = statement(`SELECT * FROM ${ITEMS} WHERE ${IN_GROUP} AND row_index = :rowIndex`);

export const READ_ITEM_AT = statement(`
  SELECT item_id FROM ${ITEMS} WHERE job_id = :jobId AND row_index = :rowIndex`);

/** Null parameters leave their columns unchanged. */
export const UPDATE_GROUP = statement(`
  UPDATE ${BATCHES} SET state = COALESCE(:state, state), answered = COALESCE(:answered, answered),
    file_id = CASE WHEN :hasFileId::boolean THEN :fileId ELSE file_id END,
    batch_id = CASE WHEN :hasBatchId::boolean THEN :batchId ELSE batch_id END, tries = COALESCE(:tries, tries),
    is_assumed = COALESCE(:isAssumed, is_assumed),
    cancel_requested = COALESCE(:cancelRequested, cancel_requested), last_error = COALESCE(:error, last_error)
  WHERE job_id = :jobId AND id = :groupId`);

export const COMPLETE_GROUP_ROW = endAttempt(
  `UPDATE ${ITEMS} SET status = 'completed', result_json = :result, reported_at = :now, completed_at = :now,
    attempt_count = attempt_count + 1, error_class = NULL, last_error = NULL, finished_token = :groupId, batch_group = '',
    ${ADD_USAGE_SQL}`,
  "reported",
  `${IN_GROUP} AND row_index = :rowIndex`,
);

/** The row, if a result of this batch group finished it. */
export const READ_FINISHED_BY_GROUP = statement(`
  SELECT * FROM ${ITEMS} WHERE job_id = :jobId AND row_index = :rowIndex AND finished_token = :groupId`);

export const REQUEUE_ROW = endAttempt(
  `UPDATE ${ITEMS} SET batch_group = '', attempt_count = attempt_count + 1, error_class = :errorClass,
    last_error = :message, ${ADD_USAGE_SQL}`,
  "retried",
  `${IN_GROUP} AND row_index = :rowIndex`,
);

/** Stores the usage as an attempt too, because the budget is the sum of the attempts. */
export const RELEASE_GROUP_ROW = endAttempt(
  `UPDATE ${ITEMS} SET batch_group = '', ${ADD_USAGE_SQL}`,
  "released",
  `${IN_GROUP} AND row_index = :rowIndex`,
);

export const RELEASE_GROUP = statement(`UPDATE ${ITEMS} SET batch_group = '' WHERE ${IN_GROUP}`);

// --- views

const MATCHES_FILTER = `job_id = :jobId AND row_index < ${ROW_LIMIT}
    AND (:statuses::text[] IS NULL OR status = ANY (:statuses))
    AND (:errorClasses::text[] IS NULL OR (status = 'failed' AND error_class = ANY (:errorClasses)))
    AND (:text::text IS NULL OR item_id ILIKE :text OR row_json ILIKE :text OR result_json ILIKE :text
      OR last_error ILIKE :text)`;

export const COUNT_PAGE = statement(`SELECT COUNT(*) AS n FROM ${ITEMS} WHERE ${MATCHES_FILTER}`);

export const READ_PAGE = statement(`
  SELECT * FROM ${ITEMS} WHERE ${MATCHES_FILTER} ORDER BY row_index LIMIT :limit OFFSET :offset`);

export const COUNT_FAILURES = statement(`
  SELECT error_class, COUNT(*) AS n, ${SUM_USAGE_SQL}
  FROM ${ITEMS}
  WHERE job_id = :jobId AND status = 'failed' AND error_class IS NOT NULL AND row_index < ${ROW_LIMIT}
  GROUP BY error_class ORDER BY n DESC, error_class`);

export const COUNT_FINISHED = statement(`
  SELECT completed_at / :span::bigint * :span::bigint AS at, COUNT(*) FILTER (WHERE status = 'completed') AS completed,
    COUNT(*) FILTER (WHERE status = 'failed') AS failed
  FROM ${ITEMS}
  WHERE job_id = :jobId AND completed_at >= :since::bigint AND status IN ('completed', 'failed') AND row_index < ${ROW_LIMIT}
  GROUP BY 1 ORDER BY 1`);

export const COUNT_WAITS = statement(`
  SELECT
    (SELECT COUNT(*) FROM ${ITEMS}
      WHERE job_id = :jobId AND status = 'pending' AND due_at > :now::bigint AND row_index < ${ROW_LIMIT}) AS waiting,
    (SELECT COUNT(*) FROM ${ATTEMPTS} WHERE job_id = :jobId AND error_class = 'rate_limit') AS refused`);
