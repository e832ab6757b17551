import { type Command, defineCommand } from "../../command.ts";
import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../../options/fanout-options.ts";
import { warnTo } from "../../support/fanout-setup.ts";

const HELP = `Usage: procwire fanout migrate [OPTIONS]

Create or upgrade the tables of fan-out jobs in a database. Requires the right to create schemas. Coordinators and workers
only read and write rows; --grant-to grants these rights to a role.

Options:
  --database-url URL        the database (default: PROCWIRE_DATABASE_URL, then DATABASE_URL)
  --database-url-file PATH  file with the database URL
  --grant-to ROLE           let ROLE run and execute jobs
  --outage-timeout SECONDS  wait SECONDS for an unreachable database (default: 0)
`;

export const command: Command = defineCommand({
  help: HELP,
  options: { ...RUN_FLAGS, "grant-to": { type: "string" } },
  takesArguments: false,

  async run(values) {
    const options = parseRunOptions(values);
    const databaseUrl = requiredDatabaseUrl(options);
    const { PostgresStore } = await import("../../../fanout/ledger/postgres/postgres-store.ts");
    const { outageTimeoutSeconds } = options;
    await using store = await PostgresStore.open({
      databaseUrl,
      outageTimeoutMs: (outageTimeoutSeconds ?? 0) * 1000,
      waitToOpen: outageTimeoutSeconds !== undefined,
      onError: warnTo("database"),
    });
    if (values["grant-to"] !== undefined) await store.grantTo(values["grant-to"]);
    process.stderr.write("the database is ready\n");
    return 0;
  },
});
