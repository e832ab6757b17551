/** Schema version of the first release. Versions 1 to 5 existed only before it. */
export const INITIAL_VERSION = 6;

/** A numbered change of a ledger's schema. The schema is never changed in another way. */
export interface Migration {
  readonly version: number;
  readonly sql: string;
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
