import type { DatabaseSync } from "node:sqlite";
import { type Migration, missingMigrations } from "../migrations.ts";

/** What a row's attempts have come to, in both of the tables that rows were stored in one by one. */
const ATTEMPT_COLUMNS = `
    status TEXT NOT NULL DEFAULT 'pending',
    attempt_count INTEGER NOT NULL DEFAULT 0,
    attempt_token TEXT,
    due_at INTEGER NOT NULL DEFAULT 0,
    result_json TEXT,
    error_class TEXT,
    last_error TEXT,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_output_tokens INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER,
    reported_at INTEGER,
    completed_at INTEGER`;

/** Times are milliseconds since the epoch. */
const MIGRATIONS: readonly Migration[] = [
  {
    version: 1,
    sql: `
  CREATE TABLE agent_jobs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    task_json TEXT NOT NULL,
    settings_json TEXT NOT NULL,
    headers_json TEXT NOT NULL,
    total_rows INTEGER NOT NULL,
    input_path TEXT NOT NULL,
    output_path TEXT NOT NULL,
    last_error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER
  ) STRICT;

  CREATE TABLE agent_job_items (
    row_index INTEGER PRIMARY KEY,
    item_id TEXT NOT NULL UNIQUE,
    source_id TEXT,
    row_json TEXT NOT NULL,
    ${ATTEMPT_COLUMNS}
  ) STRICT;
  CREATE INDEX agent_job_items_by_status ON agent_job_items (status, row_index);
  `,
  },
  {
    // What was said in each attempt, and the question of each row, by which other jobs find its answer.
    version: 2,
    sql: `
  ALTER TABLE agent_job_items ADD COLUMN question BLOB;
  CREATE INDEX agent_job_items_by_question ON agent_job_items (question)
    WHERE status = 'completed' AND question IS NOT NULL;

  CREATE TABLE agent_job_attempts (
    id INTEGER PRIMARY KEY,
    row_index INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    error_class TEXT,
    message TEXT,
    input_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_output_tokens INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    transcript_json TEXT NOT NULL
  ) STRICT;
  CREATE INDEX agent_job_attempts_by_row ON agent_job_attempts (row_index);
  `,
  },
  {
    // Parts of the table that are submitted to the provider as batches. A row's batch_part is the part it is in, an empty text
    // once it is left to single calls, or NULL if it was never in a batch. A job records whether its table is still being read.
    version: 3,
    sql: `
  ALTER TABLE agent_jobs ADD COLUMN is_reading INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE agent_job_items ADD COLUMN batch_part TEXT;
  ALTER TABLE agent_job_items ADD COLUMN batch_input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE agent_job_items ADD COLUMN batch_cached_input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE agent_job_items ADD COLUMN batch_output_tokens INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX agent_job_items_by_part ON agent_job_items (batch_part, row_index) WHERE batch_part <> '';

  ALTER TABLE agent_job_attempts ADD COLUMN batch_input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE agent_job_attempts ADD COLUMN batch_cached_input_tokens INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE agent_job_attempts ADD COLUMN batch_output_tokens INTEGER NOT NULL DEFAULT 0;

  CREATE TABLE agent_job_batches (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL DEFAULT 'assigned',
    row_count INTEGER NOT NULL,
    answered INTEGER NOT NULL DEFAULT 0,
    file_id TEXT,
    batch_id TEXT,
    tries INTEGER NOT NULL DEFAULT 1,
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    created_at INTEGER NOT NULL
  ) STRICT;
  `,
  },
  {
    // Less space for each row: an id is stored only where it is not the row's number, and the names of a row's columns are
    // stored once. `columns_id` NULL: `row_json` is an object; otherwise it holds the cells, each behind a separator.
    version: 4,
    sql: `
  CREATE TABLE agent_job_columns (
    id INTEGER PRIMARY KEY,
    names_json TEXT NOT NULL UNIQUE
  ) STRICT;

  CREATE TABLE agent_job_items_4 (
    row_index INTEGER PRIMARY KEY,
    own_id TEXT,
    item_id TEXT NOT NULL GENERATED ALWAYS AS (COALESCE(own_id, 'row-' || (row_index + 1))) VIRTUAL,
    source_id TEXT,
    row_json TEXT NOT NULL,
    columns_id INTEGER,
    ${ATTEMPT_COLUMNS},
    question BLOB,
    batch_part TEXT,
    batch_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_output_tokens INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  INSERT INTO agent_job_items_4 (row_index, own_id, source_id, row_json, status, attempt_count, attempt_token, due_at,
    result_json, error_class, last_error, input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens,
    started_at, reported_at, completed_at, question, batch_part, batch_input_tokens, batch_cached_input_tokens,
    batch_output_tokens)
  SELECT row_index, NULLIF(item_id, 'row-' || (row_index + 1)), source_id, row_json, status, attempt_count, attempt_token,
    due_at, result_json, error_class, last_error, input_tokens, cached_input_tokens, output_tokens,
    reasoning_output_tokens, started_at, reported_at, completed_at, question, batch_part, batch_input_tokens,
    batch_cached_input_tokens, batch_output_tokens
  FROM agent_job_items;
  DROP TABLE agent_job_items;
  ALTER TABLE agent_job_items_4 RENAME TO agent_job_items;

  CREATE UNIQUE INDEX agent_job_items_by_own_id ON agent_job_items (own_id) WHERE own_id IS NOT NULL;
  CREATE INDEX agent_job_items_by_status ON agent_job_items (status);
  CREATE INDEX agent_job_items_by_question ON agent_job_items (question)
    WHERE status = 'completed' AND question IS NOT NULL;
  CREATE INDEX agent_job_items_by_part ON agent_job_items (batch_part, row_index) WHERE batch_part <> '';
  `,
  },
  {
    // Rows that nobody has worked on yet are stored many together, and get a record of their own when one of them is claimed.
    version: 5,
    sql: `
  CREATE TABLE agent_job_blocks (
    first_row INTEGER PRIMARY KEY,
    row_count INTEGER NOT NULL,
    columns_id INTEGER,
    ids_json TEXT,
    questions BLOB,
    cells TEXT NOT NULL
  ) STRICT;
  `,
  },
];

/** The version is stored in the file itself. */
export function migrate(db: DatabaseSync): void {
  if (missingMigrations(MIGRATIONS, versionOf(db), "ledger").length === 0) return;
  db.exec("BEGIN IMMEDIATE");
  try {
    // Another process may have migrated it while this one waited.
    for (const next of missingMigrations(MIGRATIONS, versionOf(db), "ledger")) {
      db.exec(`${next.sql}; PRAGMA user_version = ${next.version}`);
    }
    db.exec("COMMIT");
  } catch (error) {
    db.exec("ROLLBACK");
    throw error;
  }
}

function versionOf(db: DatabaseSync): number {
  return Number(db.prepare("PRAGMA user_version").get()?.user_version ?? 0);
}
