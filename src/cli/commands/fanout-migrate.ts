import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../options/fanout-options.ts";
import { parseOptions } from "../options/parse-options.ts";
import { warnTo } from "../support/fanout-setup.ts";

const HELP = `Usage: procwire fanout migrate --database-url URL [--grant-to ROLE]

Sets up the tables of fan-out jobs in a database, or brings them to this version. It needs the right to create schemas.
Coordinators and workers need only the rights to read and write rows, which --grant-to gives to a role.

      --database-url URL    the database, or
      --database-url-file PATH  a file with its URL; else PROCWIRE_DATABASE_URL, DATABASE_URL
      --grant-to ROLE       let that role run jobs and work on them
      --outage-timeout SECONDS  wait SECONDS for an unreachable database (default: 0)
`;

export async function runFanoutMigrateCommand(argv: string[]): Promise<number> {
  const { values } = parseOptions({ args: argv, options: { ...RUN_FLAGS, "grant-to": { type: "string" } } });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const given = parseRunOptions(values);
  const databaseUrl = requiredDatabaseUrl(given);
  const { PostgresStore } = await import("../../fanout/ledger/postgres/postgres-store.ts");
  const { outageTimeoutSeconds } = given;
  await using store = await PostgresStore.open({
    databaseUrl,
    outageTimeoutMs: (outageTimeoutSeconds ?? 0) * 1000,
    waitToOpen: outageTimeoutSeconds !== undefined,
    onError: warnTo("database"),
  });
  if (values["grant-to"] !== undefined) await store.grantTo(values["grant-to"]);
  process.stderr.write("the database is ready\n");
  return 0;
}
