import { type Command, defineCommand } from "../../command.ts";
import { MIGRATE_HELP } from "../../options/agent/fanout-help.ts";
import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../../options/agent/fanout-options.ts";
import { pickFlags } from "../../options/pick-flags.ts";
import { warnTo } from "../../support/fanout-setup.ts";

export const command: Command = defineCommand("fanout migrate", MIGRATE_HELP, {
  options: { ...pickFlags(RUN_FLAGS, MIGRATE_HELP), "grant-to": { type: "string" } },
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
