import type { DatabaseSync } from "node:sqlite";
import { ledgerMigrations, missingMigrations, stopCausesFromTexts } from "../migrations.ts";

/** Creates the tables of a ledger. Times are milliseconds since the epoch. */
const INITIAL_SCHEMA = `
  CREATE TABLE agent_jobs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    task_json TEXT NOT NULL,
    settings_json TEXT NOT NULL,
    headers_json TEXT NOT NULL,
    total_rows INTEGER NOT NULL,
    is_reading INTEGER NOT NULL,
    input_path TEXT NOT NULL,
    output_path TEXT NOT NULL,
    last_error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER
  ) STRICT;

  -- Column names, stored once for all rows that have the same columns.
  CREATE TABLE agent_job_columns (
    id INTEGER PRIMARY KEY,
    names_json TEXT NOT NULL UNIQUE
  ) STRICT;

  -- Rows that were never leased, many per record to save space. The first lease of a row unpacks its block.
  CREATE TABLE agent_job_blocks (
    first_row INTEGER PRIMARY KEY,
    row_count INTEGER NOT NULL,
    columns_id INTEGER,
    ids_json TEXT,
    questions BLOB,
    cells TEXT NOT NULL
  ) STRICT;

  -- stored_id is NULL if the item id is the row number. If columns_id is NULL, row_json is an object; otherwise row_json
  -- holds the cells, each after a separator. batch_group is NULL if the row was never in a batch, and empty once only
  -- single calls may answer the row.
  CREATE TABLE agent_job_items (
    row_index INTEGER PRIMARY KEY,
    stored_id TEXT,
    item_id TEXT NOT NULL GENERATED ALWAYS AS (COALESCE(stored_id, 'row-' || (row_index + 1))) VIRTUAL,
    source_id TEXT,
    row_json TEXT NOT NULL,
    columns_id INTEGER,
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
    completed_at INTEGER,
    question BLOB,
    batch_group TEXT,
    batch_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_output_tokens INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE UNIQUE INDEX agent_job_items_by_stored_id ON agent_job_items (stored_id) WHERE stored_id IS NOT NULL;
  CREATE INDEX agent_job_items_by_status ON agent_job_items (status);
  CREATE INDEX agent_job_items_by_question ON agent_job_items (question)
    WHERE status = 'completed' AND question IS NOT NULL;
  CREATE INDEX agent_job_items_by_group ON agent_job_items (batch_group, row_index) WHERE batch_group <> '';

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
    transcript_json TEXT NOT NULL,
    batch_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    batch_output_tokens INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE INDEX agent_job_attempts_by_row ON agent_job_attempts (row_index);

  CREATE TABLE agent_job_batches (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL DEFAULT 'assigned',
    row_count INTEGER NOT NULL,
    answered INTEGER NOT NULL DEFAULT 0,
    file_id TEXT,
    batch_id TEXT,
    tries INTEGER NOT NULL DEFAULT 1,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    created_at INTEGER NOT NULL
  ) STRICT;
  `;

const ADD_STOP_CAUSE = `
  ALTER TABLE agent_jobs ADD COLUMN stop_cause TEXT;
  ALTER TABLE agent_job_batches ADD COLUMN is_assumed INTEGER NOT NULL DEFAULT 0;
  ${stopCausesFromTexts("agent_jobs")}`;

const MIGRATIONS = ledgerMigrations(INITIAL_SCHEMA, ADD_STOP_CAUSE);

/** Creates or upgrades the tables. The version is the `user_version` of the file. */
export function migrate(db: DatabaseSync): void {
  if (missingMigrations(MIGRATIONS, schemaVersion(db)).length === 0) return;
  db.exec("BEGIN IMMEDIATE");
  try {
    // Another process may have migrated the file while this one waited for the lock.
    for (const next of missingMigrations(MIGRATIONS, schemaVersion(db))) {
      db.exec(`${next.sql}; PRAGMA user_version = ${next.version}`);
    }
    db.exec("COMMIT");
  } catch (error) {
    db.exec("ROLLBACK");
    throw error;
  }
}

function schemaVersion(db: DatabaseSync): number {
  return Number(db.prepare("PRAGMA user_version").get()?.user_version ?? 0);
}
