/** Worker thread that reads jobs for the console, because counting the rows of a large job would block the server. */
import { existsSync } from "node:fs";
import path from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage } from "../base/error-message.ts";
import { PACKAGE_PRICES } from "../fanout/cost/price-table.ts";
import type { JobStore } from "../fanout/ledger/job-ledger.ts";
import { JobsQueryService } from "../fanout/view/jobs-service.ts";
import { packageRoot } from "../native/native-files.ts";
import type { JobsLocation, JobsThreadRequest, JobsThreadResponse } from "./support/jobs-reader.ts";

/** Maximum wait for an unreachable database, before the console shows an error. */
const OUTAGE_TIMEOUT_MS = 5_000;

const location: JobsLocation = workerData;
let service: Promise<JobsQueryService> | null = null;

parentPort?.on("message", ({ id, query }: JobsThreadRequest) => {
  service ??= openService();
  void service
    .then((opened) => opened.handle(query))
    .catch((error: unknown) => {
      // The next query opens the store again, because the database may be back by then.
      service = null;
      return { type: "refused" as const, reason: errorMessage(error) };
    })
    .then((result) => parentPort?.postMessage({ id, result } satisfies JobsThreadResponse));
});

async function openService(): Promise<JobsQueryService> {
  return new JobsQueryService({
    store: await openStore(),
    prices: PACKAGE_PRICES,
    jobsHome: location.directory,
    program: commandPath(),
  });
}

/** Returns the path of the `procwire` command of this installation, if there is one. */
function commandPath(): string | undefined {
  const root = packageRoot();
  const command = root === null ? null : path.join(root, "bin", "procwire");
  return command !== null && existsSync(command) ? command : undefined;
}

async function openStore(): Promise<JobStore> {
  const options = { outageTimeoutMs: OUTAGE_TIMEOUT_MS };
  if (location.databaseUrl !== undefined) {
    const { PostgresStore } = await import("../fanout/ledger/postgres/postgres-store.ts");
    return PostgresStore.open({ ...options, databaseUrl: location.databaseUrl });
  }
  const { SqliteStore } = await import("../fanout/ledger/sqlite/sqlite-store.ts");
  return new SqliteStore(location.directory, options);
}
