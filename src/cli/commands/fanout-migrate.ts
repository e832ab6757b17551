import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../options/fanout-options.ts";
import { parseOptions } from "../options/parse-options.ts";
import { tellTrouble } from "../support/fanout-setup.ts";

const HELP = `Usage: procwire fanout migrate --database-url URL [--grant-to ROLE]

Sets up the tables of fan-out jobs in a database, or brings them to this version. It needs the right to create schemas;
whoever runs and works on jobs afterwards needs only the rights to read and write rows, which --grant-to gives to a role.

      --database-url URL    the database, or
      --database-url-file PATH  a file with its URL; else PROCWIRE_DATABASE_URL, DATABASE_URL
      --grant-to ROLE       let that role run jobs and work on them
      --outage-patience SECONDS  wait so long for a database that is away (default: not at all)
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
  const { outagePatienceSeconds } = given;
  await using store = await PostgresStore.open({
    databaseUrl,
    outagePatienceMs: (outagePatienceSeconds ?? 0) * 1000,
    waitToOpen: outagePatienceSeconds !== undefined,
    onError: tellTrouble("database"),
  });
  if (values["grant-to"] !== undefined) await store.grantTo(values["grant-to"]);
  process.stderr.write("the database is ready\n");
  return 0;
}
