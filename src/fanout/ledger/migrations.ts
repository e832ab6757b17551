/** A step that upgrades a ledger from the version before. The schema of a ledger is never changed in another way. */
export interface Migration {
  readonly version: number;
  readonly sql: string;
}

/** The steps that a ledger of this version still needs, in order. Refuses one that a newer procwire has written. */
export function missingMigrations(
  migrations: readonly Migration[],
  version: number,
  what: string,
): readonly Migration[] {
  const newest = migrations.at(-1)?.version ?? 0;
  if (version > newest) {
    throw new Error(
      `the ${what} was set up by a newer procwire (version ${version}); this one knows ${newest}`,
    );
  }
  return migrations.filter((migration) => migration.version > version);
}
