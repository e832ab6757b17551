import type { Pool } from "pg";
import { ledgerMigrations, missingMigrations, stopCausesFromTexts } from "../migrations.ts";

/** The schema of the ledger tables. The delivery engine has a separate schema, `QUEUE_SCHEMA`. */
const LEDGER_SCHEMA = "procwire";
export const JOBS = `${LEDGER_SCHEMA}.agent_jobs`;
export const ITEMS = `${LEDGER_SCHEMA}.agent_job_items`;
export const BATCHES = `${LEDGER_SCHEMA}.agent_job_batches`;
export const ATTEMPTS = `${LEDGER_SCHEMA}.agent_job_attempts`;

/** Creates the tables. Times are milliseconds since the epoch. */
const INITIAL_SCHEMA = `
  CREATE TABLE ${JOBS} (
    id text PRIMARY KEY,
    key text NOT NULL,
    is_current boolean NOT NULL,
    status text NOT NULL,
    task_json json NOT NULL,
    settings_json jsonb NOT NULL,
    headers_json json NOT NULL,
    total_rows bigint NOT NULL,
    is_reading boolean NOT NULL DEFAULT false,
    input_path text NOT NULL,
    output_path text NOT NULL,
    last_error text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    started_at bigint,
    completed_at bigint
  );
  CREATE UNIQUE INDEX agent_jobs_by_key ON ${JOBS} (key) WHERE is_current;

  -- finished_token is the token of the attempt that finished the row. It identifies a report whose response was lost.
  -- batch_group is NULL if the row was never in a batch, and empty once only single calls may answer the row.
  CREATE TABLE ${ITEMS} (
    job_id text NOT NULL REFERENCES ${JOBS} (id) ON DELETE CASCADE,
    row_index bigint NOT NULL,
    item_id text NOT NULL,
    source_id text,
    row_json text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    attempt_count integer NOT NULL DEFAULT 0,
    attempt_token text,
    finished_token text,
    due_at bigint NOT NULL DEFAULT 0,
    result_json text,
    error_class text,
    last_error text,
    input_tokens bigint NOT NULL DEFAULT 0,
    cached_input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_output_tokens bigint NOT NULL DEFAULT 0,
    started_at bigint,
    reported_at bigint,
    completed_at bigint,
    question text,
    batch_group text,
    batch_input_tokens bigint NOT NULL DEFAULT 0,
    batch_cached_input_tokens bigint NOT NULL DEFAULT 0,
    batch_output_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, row_index),
    UNIQUE (job_id, item_id)
  );
  CREATE INDEX agent_job_items_by_status ON ${ITEMS} (job_id, status, row_index);
  CREATE INDEX agent_job_items_by_end ON ${ITEMS} (job_id, completed_at);
  CREATE INDEX agent_job_items_by_question ON ${ITEMS} (question) WHERE status = 'completed';
  CREATE INDEX agent_job_items_by_group ON ${ITEMS} (job_id, batch_group, row_index) WHERE batch_group <> '';

  CREATE TABLE ${ATTEMPTS} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id text NOT NULL REFERENCES ${JOBS} (id) ON DELETE CASCADE,
    row_index bigint NOT NULL,
    outcome text NOT NULL,
    error_class text,
    message text,
    input_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_output_tokens bigint NOT NULL,
    started_at bigint,
    ended_at bigint NOT NULL,
    transcript_json text NOT NULL,
    batch_input_tokens bigint NOT NULL DEFAULT 0,
    batch_cached_input_tokens bigint NOT NULL DEFAULT 0,
    batch_output_tokens bigint NOT NULL DEFAULT 0
  );
  CREATE INDEX agent_job_attempts_by_row ON ${ATTEMPTS} (job_id, row_index);

  CREATE TABLE ${BATCHES} (
    job_id text NOT NULL REFERENCES ${JOBS} (id) ON DELETE CASCADE,
    id text NOT NULL,
    state text NOT NULL DEFAULT 'assigned',
    row_count bigint NOT NULL,
    answered bigint NOT NULL DEFAULT 0,
    file_id text,
    batch_id text,
    tries integer NOT NULL DEFAULT 1,
    cancel_requested boolean NOT NULL DEFAULT false,
    last_error text,
    created_at bigint NOT NULL,
    PRIMARY KEY (job_id, id)
  );
  `;

const ADD_STOP_CAUSE = `
  ALTER TABLE ${JOBS} ADD COLUMN stop_cause text;
  ALTER TABLE ${BATCHES} ADD COLUMN is_assumed boolean NOT NULL DEFAULT false;
  ${stopCausesFromTexts(JOBS)}`;

const MIGRATIONS = ledgerMigrations(INITIAL_SCHEMA, ADD_STOP_CAUSE);

/** Key of the advisory lock: an arbitrary number that other programs of the database are unlikely to use. */
const MIGRATION_LOCK = 7_041_985_260;

/**
 * Creates or upgrades the tables. If several processes start at once, one migrates and the others wait for it. A current
 * database is not changed, so a role without the right to create tables can use it.
 */
export async function migrate(pool: Pool): Promise<void> {
  if (await isCurrent(pool)) return;
  const client = await pool.connect();
  // The statement in flight reports a lost connection. Without a listener, the event would also end this process.
  client.on("error", () => undefined);
  try {
    await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK]);
    await client.query(
      `CREATE SCHEMA IF NOT EXISTS ${LEDGER_SCHEMA};
       CREATE TABLE IF NOT EXISTS ${LEDGER_SCHEMA}.version (version integer NOT NULL)`,
    );
    const { rows } = await client.query<{ version: number }>(`SELECT version FROM ${LEDGER_SCHEMA}.version`);
    const version = rows[0]?.version ?? 0;
    for (const next of missingMigrations(MIGRATIONS, version)) {
      await client.query(
        `BEGIN; ${next.sql}; DELETE FROM ${LEDGER_SCHEMA}.version;
         INSERT INTO ${LEDGER_SCHEMA}.version VALUES (${next.version}); COMMIT`,
      );
    }
  } finally {
    await client.query("SELECT pg_advisory_unlock($1)", [MIGRATION_LOCK]).catch(() => undefined);
    client.release();
  }
}

async function isCurrent(pool: Pool): Promise<boolean> {
  const table = `${LEDGER_SCHEMA}.version`;
  const found = await pool.query<{ name: string | null }>("SELECT to_regclass($1) AS name", [table]);
  if (found.rows[0]?.name == null) return false;
  const { rows } = await pool.query<{ version: number }>(`SELECT version FROM ${table}`);
  return missingMigrations(MIGRATIONS, rows[0]?.version ?? 0).length === 0;
}

/** Grants a role the rights to run jobs and to work on them: reading and writing rows, not altering tables. */
export async function grantDataRights(pool: Pool, role: string, schemas: readonly string[]): Promise<void> {
  const name = quoted(role);
  for (const schema of [LEDGER_SCHEMA, ...schemas]) {
    await pool.query(
      `GRANT USAGE ON SCHEMA ${schema} TO ${name};
       GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${name};
       GRANT USAGE ON ALL SEQUENCES IN SCHEMA ${schema} TO ${name};
       GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${schema} TO ${name}`,
    );
  }
}

/** Quotes any name as an SQL identifier. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
