import type { Pool, PoolClient, QueryResult } from "pg";

/** One SQL statement. Its parameters have names (`:jobId`), so their order does not matter. */
export interface Statement {
  /** SQL with `$1`, `$2`, … in place of the names. */
  readonly text: string;
  readonly names: readonly string[];
}

/** A row of the database; `record-codec.ts` decodes it. */
export type DatabaseRow = Record<string, unknown>;

/** A colon before a word is a parameter; two colons are a cast. */
const PARAMETER = /(?<!:):([a-z]\w*)/gi;

export function statement(sql: string): Statement {
  const names: string[] = [];
  const text = sql.replace(PARAMETER, (_, name: string) => {
    if (!names.includes(name)) names.push(name);
    return `$${names.indexOf(name) + 1}`;
  });
  return { text, names };
}

/** Runs a statement on a connection, or on any connection of a pool. */
export function execute(
  client: Pool | PoolClient,
  { text, names }: Statement,
  values: Readonly<Record<string, unknown>> = {},
): Promise<QueryResult<DatabaseRow>> {
  return client.query<DatabaseRow>(
    text,
    names.map((name) => {
      if (!Object.hasOwn(values, name)) throw new Error(`the statement needs a value for :${name}`);
      return values[name];
    }),
  );
}

/** Removes NUL characters, which Postgres cannot store in text. */
export function storable(text: string): string {
  return text.replaceAll("\0", "");
}
