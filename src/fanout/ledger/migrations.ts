/** Returns a statement that sets the causes of stopped jobs from their texts, which version 6 stored alone. */
export function stopCausesFromTexts(jobs: string): string {
  return `UPDATE ${jobs} SET stop_cause = CASE last_error
    WHEN 'cancelled by the user' THEN 'cancelled_by_user'
    WHEN 'cancelled by worker request' THEN 'cancelled_by_row_agent'
    WHEN 'interrupted' THEN 'interrupted' ELSE 'other' END
    WHERE last_error IS NOT NULL`;
}

/** A numbered change of a ledger's schema. The schema is never changed in another way. */
export interface Migration {
  readonly version: number;
  readonly sql: string;
}

/**
 * Returns the migrations of a ledger, in its SQL dialect. `initialSchema` creates the tables; versions 1 to 5 existed only
 * before it. `stopCause` adds the cause of a stop, and whether a batch may belong to another client.
 */
export function ledgerMigrations(initialSchema: string, stopCause: string): readonly Migration[] {
  return [
    { version: 6, sql: initialSchema },
    { version: 7, sql: stopCause },
  ];
}

/**
 * Returns the migrations that a ledger of this version still needs, in order. Version 0 is an empty ledger. Throws if
 * the version is newer than the last migration or older than the first.
 */
export function missingMigrations(migrations: readonly Migration[], version: number): readonly Migration[] {
  const first = migrations.at(0)?.version ?? 0;
  const last = migrations.at(-1)?.version ?? 0;
  if (version > last) {
    throw new Error(`schema version ${version} was created by a newer procwire; this version supports ${last}`);
  }
  if (version > 0 && version < first) throw new PreReleaseSchemaError(version);
  return migrations.filter((migration) => migration.version > version);
}

/** Thrown for a ledger that a procwire before the first release created. Such ledgers are not migrated. */
export class PreReleaseSchemaError extends Error {
  override readonly name = "PreReleaseSchemaError";

  constructor(version: number) {
    super(`schema version ${version} was created by a pre-release procwire`);
  }
}
